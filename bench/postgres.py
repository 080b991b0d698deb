"""Measures throughput into PostgreSQL: a guarantee and Spark's own JDBC sink copy the same topic into a table in turn.

Spark's own JDBC sink is at-least-once: foreachBatch with DataFrameWriter. It is measured with its default options, and,
without a target, with the driver's option that sends many rows in one INSERT. The server is an embedded one.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ackwright.local.postgres import ADMIN, EmbeddedPostgres
from bench import workload
from bench.context import Context
from bench.figures import Figure, Throughput
from bench.processes import UsageMeter, cpu_seconds
from bench.runs import EXACTLY_ONCE, Copy, Target, our_job, run_job, run_spark_sink
from bench.throughput import Case, after_warm_up, cases, durations, figures, take_turns, with_long_warm_up

JDBC_SINK = "Spark's own JDBC sink"
JDBC_SINK_REWRITTEN = "Spark's own JDBC sink with reWriteBatchedInserts"
TARGETS = {EXACTLY_ONCE: 1.5}  # relative to JDBC_SINK, in every case
PARTITIONS = (4, 32)
_DATABASE = "postgres"
_SECRETS, _LOGIN = "secrets", "login"  # a directory, and the Secret in it


def measure(context: Context) -> list[Figure]:
    """All cases, one after the other."""
    partitions = context.cases(PARTITIONS, PARTITIONS[:1])
    with EmbeddedPostgres(log=context.directory / "postgres.log") as server:
        _track_commits(server)
        secret = context.directory / _SECRETS / _LOGIN
        secret.mkdir(parents=True, exist_ok=True)
        (secret / "username").write_text(ADMIN)
        (secret / "password").write_text(server.password)
        return [
            figure
            for case in cases(replace(context, partitions=partitions))
            for figure in _measure(context, server, with_long_warm_up(case, context))
        ]


def _track_commits(server: EmbeddedPostgres) -> None:
    """Makes the server keep the time of each commit, so that tables need no column for it."""
    server.sql("ALTER SYSTEM SET track_commit_timestamp = on")
    server.kill()
    server.start()


def _measure(context: Context, server: EmbeddedPostgres, case: Case) -> list[Figure]:
    names = (JDBC_SINK, JDBC_SINK_REWRITTEN, context.guarantee)
    source = workload.create(context.bootstrap, "source", case.partitions)
    copies = _Copies(context, server, case, source)
    try:
        workload.fill(context.bootstrap, source, case.partitions, case.batch * case.batches, case.size)
        runs, seconds = take_turns(context, names, copies.run, f"PostgreSQL, {case}")
    finally:
        workload.delete(context.bootstrap, source)
    title = f"PostgreSQL, {case}, local[{context.slots}]"
    return figures(title, context.guarantee, runs, seconds[context.guarantee], TARGETS)


@dataclass(frozen=True)
class _Copies:
    """Copies of one topic, each into a new table."""

    context: Context
    server: EmbeddedPostgres
    case: Case
    source: str

    def run(self, name: str, number: int) -> tuple[Throughput, list[float]]:
        """One copy, and the seconds of our job's batches after the warm-up."""
        case, table = self.case, f"rows_{uuid.uuid4().hex[:8]}"
        self.server.sql(f"CREATE TABLE {table} (key bytea, value bytea)")
        title = f"postgres-{case.size}-{case.partitions}-{number}-{name.replace(' ', '-')}"
        context = self.context
        copy = Copy(context.bootstrap, self.source, table, case.batch, context.slots, context.directory / title)
        try:
            before = self._server_seconds()
            with UsageMeter() as meter:
                seconds = self._copy(copy, name)
                of_server = self._server_seconds() - before
                times = self._commit_times(table)
        finally:
            self.server.sql(f"DROP TABLE {table}")
        per_row = {"PostgreSQL": of_server * 1e6 / len(times)}  # of all rows: it needs no warm-up
        return after_warm_up(case, times, meter, per_row), durations(seconds, case.warm_up)

    def _copy(self, copy: Copy, name: str) -> dict[int, float]:
        server = self.server
        if name == self.context.guarantee:
            address = {"host": server.host, "port": server.port, "database": _DATABASE, "table": copy.sink}
            spec = {"sink": {"postgres": {**address, "credentialsSecret": {"name": _LOGIN}}}}
            secrets = self.context.directory / _SECRETS
            job = our_job(copy, name, {"availableNow": True}, spec=spec, secrets=secrets)
            return run_job(job, copy.directory)
        more = "&reWriteBatchedInserts=true" if name == JDBC_SINK_REWRITTEN else ""
        options = {
            "url": f"jdbc:postgresql://{server.host}:{server.port}/{_DATABASE}?sslmode=disable{more}",
            "driver": "org.postgresql.Driver",
            "dbtable": copy.sink,
            "user": ADMIN,
            "password": server.password,
        }
        run_spark_sink(copy, Target("jdbc", options, "postgresql"))
        return {}

    def _server_seconds(self) -> float:
        """CPU seconds that the server has used."""
        return cpu_seconds([self.server.pid] if self.server.pid else [])

    def _commit_times(self, table: str) -> npt.NDArray[np.int64]:
        """The sorted times (ms) at which rows were committed.

        Raises RuntimeError unless each record is there once: a run that lost or duplicated rows is no measurement.
        """
        time_ms = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000)::bigint"
        transactions = self.server.sql(f"SELECT {time_ms}, count(*) FROM {table} GROUP BY xmin")  # noqa: S608
        times, rows = np.array(transactions, dtype=np.int64).reshape(-1, 2).T
        if rows.sum() != self.case.batch * self.case.batches:
            raise RuntimeError(f"{table} contains {rows.sum()} rows instead of {self.case.batch * self.case.batches}")
        return np.sort(np.repeat(times, rows))
