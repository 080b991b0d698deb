"""The sink of PostgreSQL in this process, without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ackwright_stream.jobspec import JobSpec, PostgresSink
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.pipelines import document, job_of
from integration.support.postgres import Database

A, B = Lane("in", 0), Lane("in", 1)
IDS = {"in": "topic-id"}
SESSION = {
    "synchronous_commit": "on",
    "lock_timeout": "2000",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "60000",
}


def job(directory: Path, database: Database, table: str = "rows", **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read."""
    spec = job_of(document("127.0.0.1:1", "p", "exactly-once", "in", "out"), directory)
    sink = database.sink(table, session=SESSION, **fields)
    quick = replace(sink, connection={**sink.connection, "tcp_user_timeout": "10000"})
    return replace(spec, sink=quick, operation_timeout_ms=10_000)


def with_session(job: JobSpec, **changes: str) -> JobSpec:
    """The jobspec with other settings of its transactions."""
    sink = job.sink_of(PostgresSink)
    return replace(job, sink=replace(sink, session={**sink.session, **changes}))


def with_connection(job: JobSpec, **changes: str) -> JobSpec:
    """The jobspec with other settings of its connections."""
    sink = job.sink_of(PostgresSink)
    return replace(job, sink=replace(sink, connection={**sink.connection, **changes}))


def rows(lane: Lane, start: int, until: int, batch: int = 100) -> Iterable[pa.RecordBatch]:
    """The rows of a range of offsets, in batches."""
    for first in range(start, until, batch):
        offsets = range(first, min(until, first + batch))
        yield pa.record_batch(
            {"lane": pa.array([lane.partition] * len(offsets), pa.int32()), "n": pa.array(offsets, pa.int64())}
        )


TABLE = "CREATE TABLE rows (lane int, n bigint)"


class Driver:
    """One driver of a pipeline: it has joined and settled its lanes."""

    def __init__(self, spec: JobSpec, lanes: Sequence[Lane] = (A,), start: int = 0) -> None:
        self.sink = PostgresStore(spec)
        self.membership = self.sink.join(lanes)
        positions = self.sink.read(lanes)
        number = 1 + max((p.driver for p in positions.values() if p), default=0)
        batches = [p.batch for p in positions.values() if p and p.batch is not None] if spec.state else []
        self.lanes = Lanes(spec, self.sink, self.membership, number, IDS, batch=max(batches, default=None))
        starts = {lane: at.offset if at else start for lane, at in positions.items()}
        self.lanes.settle(starts, [lane for lane, at in positions.items() if at is None], None, ())

    def task(self) -> Lanes:
        """The lanes as a task in another process has them, with a separate connection."""
        return Lanes(self.lanes.job, PostgresStore(self.lanes.job), self.membership, self.lanes.driver, IDS)

    def prepared(self, batch: Range) -> Callable[[], int]:
        """A function that writes the rows of a range, without a position."""

        def write() -> int:
            written = rows(batch.lane, batch.start, batch.until)
            return self.task().sink.write([batch.lane], written, membership=self.membership)

        return write


def offsets(database: Database, lane: Lane = A) -> list[int]:
    """The source offsets of the rows of a lane, sorted, as psql reads them."""
    return [int(n) for (n,) in database.sql(f"SELECT n FROM rows WHERE lane = {lane.partition} ORDER BY n")]  # noqa: S608


def position(database: Database, lane: Lane = A) -> int:
    """The position of a lane, as psql reads it."""
    where = f"partition = {lane.partition}"
    ((offset,),) = database.sql(f'SELECT "offset" FROM ackwright.positions WHERE {where}')  # noqa: S608
    return int(offset)
