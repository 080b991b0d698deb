"""Drivers of a sink that stages rows, in this process, without Kafka and Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, IntegerType, LongType, StringType, StructField, StructType

from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.base import StagedRows

A, B = Lane("in", 0), Lane("in", 1)
IDS = {"in": "8mhvHSzDTZeBgiJfv3vIHQ"}
COLUMNS = StructType([StructField("lane", IntegerType()), StructField("n", LongType())])


def rows(lane: Lane, start: int, until: int, batch: int = 100) -> Iterable[pa.RecordBatch]:
    """The rows of a range of offsets, in batches."""
    for first in range(start, until, batch):
        offsets = range(first, min(until, first + batch))
        yield pa.record_batch(
            {"lane": pa.array([lane.partition] * len(offsets), pa.int32()), "n": pa.array(offsets, pa.int64())}
        )


def texts(*values: bytes) -> pa.Array:
    """Text as Spark passes it to tasks, also if it is not UTF-8."""
    return pa.array(values, pa.binary()).view(pa.string())


# Where text may be: its column's type, and the column from texts().
PLACES_OF_TEXT: Mapping[str, tuple[DataType, Callable[[pa.Array], pa.Array]]] = {
    "column": (StringType(), lambda text: text),
    "array": (ArrayType(StringType()), lambda text: pa.ListArray.from_arrays(range(len(text) + 1), text)),
    "struct": (
        StructType([StructField("t", StringType())]),
        lambda text: pa.StructArray.from_arrays([text], names=["t"]),
    ),
}


class Frame:
    """What the sink asks of a frame."""

    def __init__(self, schema: StructType = COLUMNS) -> None:
        self.schema, self.columns = schema, schema.names

    def select(self, *_: object) -> Frame:
        return self


class Driver:
    """One driver of a pipeline: it has joined and settled its lanes."""

    def __init__(
        self, spec: JobSpec, lanes: Sequence[Lane] = (A,), start: int = 0, columns: StructType = COLUMNS
    ) -> None:
        frame: Any = Frame(columns)
        self.sink: Any = registry.for_driver(spec, None)
        self.sink.prepare(frame)
        self.membership = self.sink.join(lanes)
        positions = self.sink.read(lanes)
        number = 1 + max((p.driver for p in positions.values() if p), default=0)
        self.lanes = Lanes(spec, self.sink, self.membership, number, IDS)
        starts = {lane: at.offset if at else start for lane, at in positions.items()}
        self.lanes.settle(starts, [lane for lane, at in positions.items() if at is None], None, ())

    def task(self) -> Any:
        """The sink as a task's worker has it."""
        return registry.for_tasks(self.lanes.job, transactional=False)

    def stage(self, *of_tasks: Iterable[pa.RecordBatch]) -> StagedRows:
        """What these tasks have staged, each in another process than the driver."""
        answers = [self.task().stage(batches) for batches in of_tasks]
        return StagedRows(tuple(staged for _, staged in answers), sum(n for n, _ in answers))

    def commit(self, ranges: Sequence[Range], staged: StagedRows) -> tuple[Outcome, int]:
        """Commits what tasks have staged."""
        return self.lanes.advance_staged(self.sink.staging, ranges, staged)

    def prepared(self, batch: Range) -> Callable[[], None]:
        """A function that writes the rows of a range, which are staged now, without a position."""
        staged = self.stage(rows(batch.lane, batch.start, batch.until))
        return lambda: self.sink.publish(staged, self.membership)

    def deliver(self, *ranges: Range) -> tuple[Outcome, int]:
        """A batch with these ranges, whose rows are their offsets; a task for each."""
        return self.commit(ranges, self.stage(*(rows(r.lane, r.start, r.until) for r in ranges)))
