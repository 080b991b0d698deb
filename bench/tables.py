"""Measures throughput into tables of Delta Lake and Iceberg: a guarantee and Spark's own writer copy a topic in turn.

Spark's own writers are the sinks of streams in delta-spark and iceberg-spark-runtime. They have as many tasks as our
job, so that all files have the same number of rows, and about as many bytes. The tables are in a directory, that of
Iceberg in a REST catalog on this machine.
"""

from __future__ import annotations

import json
import random
import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from deltalake import DeltaTable
from pyiceberg.catalog.rest import RestCatalog

from bench import workload
from bench.context import Context
from bench.figures import Figure, Throughput
from bench.processes import UsageMeter, cpu_seconds
from bench.runs import EXACTLY_ONCE, Copy, Target, our_job, run_job, run_spark_sink
from bench.throughput import Case, after_warm_up, cases, durations, figures, take_turns
from integration.support import spark_tables
from integration.support.iceberg_server import RestCatalogServer

DELTA_WRITER = "Spark's own Delta writer"
ICEBERG_WRITER = "Spark's own Iceberg writer"
TARGETS = {EXACTLY_ONCE: 0.9}  # relative to Spark's own writer, in every case
PARTITIONS = 4
_SIZES_DIFFER = 0.1  # the bytes of a row in the files of two candidates, at most
_COLUMNS = pa.schema([("key", pa.binary()), ("value", pa.binary())])
_NAMESPACE = "bench"


@dataclass(frozen=True)
class Commit:
    """A version of a table."""

    time: int  # ms, when it became the latest
    rows: int  # that it adds
    files: int  # with these rows
    bytes: int = 0  # of these files


class Tables(Protocol):
    """A kind of tables."""

    @property
    def title(self) -> str:
        """Their name."""
        ...

    @property
    def writer(self) -> str:
        """The name of Spark's own writer."""
        ...

    def create(self, name: str) -> None:
        """Creates a table, which both candidates find."""
        ...

    def sink(self, name: str) -> Mapping[str, Any]:
        """The sink of our job's spec."""
        ...

    def target(self, name: str, tasks: int) -> Target:
        """Where Spark's own writer writes."""
        ...

    def place(self, name: str) -> Path:
        """The directory of the table, with its log or metadata."""
        ...

    def commits(self, name: str) -> Sequence[Commit]:
        """What was committed to the table, in any order."""
        ...

    def cpu(self) -> Mapping[str, float]:
        """CPU seconds that servers of the tables have used, by name."""
        ...


@dataclass(frozen=True)
class DeltaTables:
    """Tables in a directory."""

    directory: Path
    title: str = "Delta Lake"
    writer: str = DELTA_WRITER

    def create(self, name: str) -> None:
        """As in Tables."""
        DeltaTable.create(str(self.place(name)), _COLUMNS)

    def sink(self, name: str) -> Mapping[str, Any]:
        """As in Tables."""
        return {"delta": {"path": str(self.place(name))}}

    def target(self, name: str, tasks: int) -> Target:
        """As in Tables."""
        options = {"path": str(self.place(name))}
        return Target("delta", options, spark_tables.DELTA_JARS, spark_tables.DELTA, tasks)

    def place(self, name: str) -> Path:
        """As in Tables."""
        return self.directory / name

    def commits(self, name: str) -> Sequence[Commit]:
        """As in Tables."""
        return [_delta_commit(entry) for entry in (self.place(name) / "_delta_log").glob("*.json")]

    def cpu(self) -> Mapping[str, float]:
        """As in Tables."""
        return {}


def _delta_commit(entry: Path) -> Commit:
    """The commit of an entry of the log; the table has it since the entry was created."""
    actions = map(json.loads, entry.read_text().splitlines())
    added = [action["add"] for action in actions if "add" in action]
    rows = sum(int(json.loads(file["stats"])["numRecords"]) for file in added)
    return Commit(_created(entry), rows, len(added), sum(int(file["size"]) for file in added))


@dataclass(frozen=True)
class IcebergTables:
    """Tables of a REST catalog, whose files are in a directory."""

    server: RestCatalogServer
    title: str = "Iceberg"
    writer: str = ICEBERG_WRITER

    def create(self, name: str) -> None:
        """As in Tables."""
        catalog = RestCatalog("default", uri=self.server.uri)
        catalog.create_namespace_if_not_exists(_NAMESPACE)
        catalog.create_table((_NAMESPACE, name), _COLUMNS)

    def sink(self, name: str) -> Mapping[str, Any]:
        """As in Tables."""
        return {"iceberg": {"catalog": {"uri": self.server.uri}, "table": f"{_NAMESPACE}.{name}"}}

    def target(self, name: str, tasks: int) -> Target:
        """As in Tables."""
        options = {"path": f"{spark_tables.CATALOG}.{_NAMESPACE}.{name}"}
        settings = spark_tables.iceberg(self.server.uri)
        return Target("iceberg", options, spark_tables.ICEBERG_JARS, settings, tasks)

    def place(self, name: str) -> Path:
        """As in Tables."""
        return self.server.warehouse / _NAMESPACE / name

    def commits(self, name: str) -> Sequence[Commit]:
        """As in Tables."""
        commits: dict[int, Commit] = {}
        for file in sorted((self.place(name) / "metadata").glob("*.metadata.json"), key=_created):
            for snapshot in json.loads(file.read_text()).get("snapshots", ()):
                added = (
                    snapshot["summary"].get(f"added-{what}", 0) for what in ("records", "data-files", "files-size")
                )
                commits.setdefault(snapshot["snapshot-id"], Commit(_created(file), *map(int, added)))
        return list(commits.values())

    def cpu(self) -> Mapping[str, float]:
        """As in Tables."""
        return {"REST catalog": cpu_seconds([self.server.pid])}


def _created(file: Path) -> int:
    """The time (ms) at which a file was written."""
    return file.stat().st_mtime_ns // 1_000_000


def measure_delta(context: Context) -> list[Figure]:
    """All cases, one after the other."""
    return _measure(context, DeltaTables(context.directory / "delta"))


def measure_iceberg(context: Context) -> list[Figure]:
    """All cases, one after the other."""
    with RestCatalogServer(context.directory / "iceberg") as server:
        return _measure(context, IcebergTables(server))


def _measure(context: Context, tables: Tables) -> list[Figure]:
    inputs = cases(replace(context, partitions=context.partitions or (PARTITIONS,)))
    return [figure for case in inputs for figure in _measure_case(context, tables, case)]


def _measure_case(context: Context, tables: Tables, case: Case) -> list[Figure]:
    source = workload.create(context.bootstrap, "source", case.partitions)
    copies = _Copies(context, tables, case, source)
    try:
        values = random.Random(case.size)
        workload.fill_with(
            context.bootstrap,
            source,
            case.partitions,
            case.batch * case.batches,
            # Random, because Parquet has a value that repeats only once.
            lambda _, __: values.randbytes(case.size // 2).hex().encode(),
        )
        names = (tables.writer, context.guarantee)
        runs, seconds = take_turns(context, names, copies.run, f"{tables.title}, {case}")
        require_like_sizes(copies.row_bytes)
    finally:
        workload.delete(context.bootstrap, source)
    title = f"{tables.title}, {case}, local[{context.slots}]"
    return figures(title, context.guarantee, runs, seconds[context.guarantee], TARGETS)


@dataclass(frozen=True)
class _Copies:
    """Copies of one topic, each into a new table."""

    context: Context
    tables: Tables
    case: Case
    source: str
    row_bytes: dict[str, float] = field(default_factory=dict)  # of the last run of each candidate

    def run(self, name: str, number: int) -> tuple[Throughput, list[float]]:
        """One copy, and the seconds of our job's batches after the warm-up."""
        context, case, tables = self.context, self.case, self.tables
        table = f"rows_{uuid.uuid4().hex[:8]}"
        tables.create(table)
        title = f"{tables.title}-{case.size}-{case.partitions}-{number}-{name}".replace(" ", "-")
        copy = Copy(context.bootstrap, self.source, table, case.batch, context.slots, context.directory / title)
        before = tables.cpu()
        try:
            with UsageMeter() as meter:
                seconds = self._copy(copy, name)
                servers = {server: used - before[server] for server, used in tables.cpu().items()}
            commits = tables.commits(table)
            times = row_times(commits, case, min(context.slots, case.partitions))
            self.row_bytes[name] = sum(commit.bytes for commit in commits) / len(times)
        finally:
            shutil.rmtree(tables.place(table))
        per_row = {server: used * 1e6 / len(times) for server, used in servers.items()}  # of all rows
        return after_warm_up(case, times, meter, per_row), durations(seconds, case.warm_up)

    def _copy(self, copy: Copy, name: str) -> Mapping[int, float]:
        if name == self.tables.writer:
            run_spark_sink(copy, self.tables.target(copy.sink, min(copy.slots, self.case.partitions)))
            return {}
        spec = {"sink": self.tables.sink(copy.sink)}
        return run_job(our_job(copy, name, {"availableNow": True}, spec=spec), copy.directory)


def row_times(commits: Sequence[Commit], case: Case, files: int) -> npt.NDArray[np.int64]:
    """The sorted times (ms) at which rows were committed.

    files: of each batch. Raises RuntimeError unless each record is in the table once, in files of the same number of
    rows: a run that lost or duplicated rows, or whose files are larger, is no measurement.
    """
    with_rows = sorted((commit for commit in commits if commit.rows), key=lambda commit: commit.time)
    rows = sum(commit.rows for commit in with_rows)
    if rows != case.batch * case.batches:
        raise RuntimeError(f"the table contains {rows} rows instead of {case.batch * case.batches}")
    written = sum(commit.files for commit in with_rows)
    if written != files * case.batches:
        raise RuntimeError(f"the table has {written} files instead of {files * case.batches}")
    return np.repeat([commit.time for commit in with_rows], [commit.rows for commit in with_rows]).astype(np.int64)


def require_like_sizes(row_bytes: Mapping[str, float]) -> None:
    """Raises RuntimeError if the rows of one candidate take more bytes in files than those of another by over 10 %.

    row_bytes: of each candidate. Other sizes mean another compression or encoding, which is other work.
    """
    smallest, largest = min(row_bytes.values()), max(row_bytes.values())
    if largest > smallest * (1 + _SIZES_DIFFER):
        sizes = ", ".join(f"{size:.1f} with {name}" for name, size in row_bytes.items())
        raise RuntimeError(f"the files have different sizes, in bytes per row: {sizes}")
