"""What the guarantees share: a batch, its result, and how a task of it reports from a Python worker to the driver."""

from __future__ import annotations

import json
import sys
import zipimport
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, to_json
from ackwright_stream.lanes import Lanes, Outcome, Range
from ackwright_stream.positions import Lane
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.enqueue import Enqueue
from ackwright_stream.spark_internals.arrow import spark_schema
from ackwright_stream.spark_internals.execution import Execution
from ackwright_stream.task_input import require_complete_input

_ANSWER = pa.schema(
    [
        ("task", pa.int32()),
        ("range", pa.string()),
        ("outcome", pa.string()),
        ("records", pa.int64()),
        ("reason", pa.string()),
        ("message", pa.string()),
    ]
)
_RANGES = "ackwright.ranges"  # the property of a batch's Spark job that tells its tasks their ranges


@dataclass(frozen=True)
class Work:
    """What every task of a stream needs."""

    job: JobSpec
    driver: int
    topic_ids: Mapping[str, str]


@dataclass(frozen=True)
class Batch:
    """One batch of the stream. rows: as foreachBatch gives them; plan: the stream's own, which they come from;
    ranges: by the task's partition id."""

    rows: DataFrame
    plan: Execution
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch: the offset that each lane is at now, records written (None: not known), offsets given up."""

    positions: Mapping[Lane, int]
    records: int | None = 0
    abandoned: int = 0
    skipped: tuple[Lane, ...] = field(default=())


class Delivery(Protocol):
    """One guarantee."""

    def planned(self, shaped: DataFrame) -> DataFrame:
        """What the stream computes, from the columns of the sink: the rows of its batches."""
        ...

    def deliver(self, batch: Batch) -> BatchResult:
        """Carries the batch to the sink and advances the positions, in the order that the guarantee asks for. Raises JobError."""
        ...

    def abandon(self, ranges: tuple[Range, ...]) -> int:
        """After a failed batch: gives its ranges up where the guarantee says so; returns the number of offsets given up."""
        ...


Task = Callable[[Work, Range, Iterator[pa.RecordBatch]], tuple[Outcome, int]]


def in_tasks(rows: DataFrame, work: Work, task: Task) -> DataFrame:
    """A stream whose tasks carry out `task` on their rows, and answer with one row each. It is part of the stream's plan, so that each row
    goes through one plan: what is made of foreachBatch's frame is analysed for each batch, and comes behind the stream's own plan."""
    return rows.mapInArrow(partial(_in_worker, work, task), spark_schema(_ANSWER))


def run(batch: Batch) -> list[tuple[int, Outcome, int]]:
    """Runs a batch of a stream that in_tasks() made; returns (task, outcome, records) for each task. Raises JobError, also when a task did
    not answer, or for another range than that of this batch: a lane that nobody answers for is not delivered."""
    told = json.dumps([(r.lane.topic, r.lane.partition, r.start, r.until) for r in batch.ranges])
    batch.rows.sparkSession.sparkContext.setLocalProperty(_RANGES, told)
    answers = sorted(batch.rows.collect(), key=lambda a: int(a.task))
    failed = next((a for a in answers if a.reason is not None), None)
    if failed is not None:
        raise JobError(Reason(failed.reason), failed.message)
    if [(a.task, a.range) for a in answers] != [(i, repr(r)) for i, r in enumerate(batch.ranges)]:
        found = ", ".join(f"{a.task}: {a.range}" for a in answers)
        raise JobError(
            Reason.UNEXPECTED,
            f"the tasks of a batch of {len(batch.ranges)} ranges answered for others than theirs ({found})",
        )
    return [(a.task, Outcome(a.outcome), a.records) for a in answers]


def _in_worker(work: Work, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    ranges = context.getLocalProperty(_RANGES) if context else None
    if context is None or ranges is None:
        raise JobError(Reason.UNEXPECTED, f"this task was not told its range: the property {_RANGES} is missing")
    index = context.partitionId()
    topic, partition, start, until = json.loads(ranges)[index]
    wanted = Range(Lane(topic, partition), start, until)
    try:
        outcome, records = task(work, wanted, require_complete_input(batches))
        yield _answer(index, wanted, outcome=outcome.value, records=records)
    except JobError as e:
        if not REASONS[e.reason].driver_decides:
            raise  # Spark runs the task again, if the guarantee lets it; it starts at the init, and the position tells
        yield _answer(index, wanted, reason=e.reason.value, message=e.message)
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """PySpark begins every task by importlib.invalidate_caches(), and from Python 3.10 on that reads the directory of each zip on the path
    anew: of pyspark.zip, that is 0.2 to 0.5 s a task. What is loaded stays loaded; a later import finds the archive again."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def _answer(task: int, wanted: Range, **found: object) -> pa.RecordBatch:
    row = {"task": task, "range": repr(wanted), "outcome": None, "records": 0, "reason": None, "message": None, **found}
    return pa.RecordBatch.from_pylist([row], schema=_ANSWER)


def drain(batches: Iterator[pa.RecordBatch]) -> None:
    """Reads what is not needed, so that the Python worker can be used again."""
    for _ in batches:
        pass


def enqueue_all(put: Enqueue, batches: Iterator[pa.RecordBatch], between: Callable[[], None]) -> int:
    """Hands all rows to the producer; returns their number, each of which was taken. (rule 12)"""
    try:
        records = 0
        for rows in batches:
            records += put(rows)
            between()
        return records
    finally:
        put.close()


_lanes_of_this_process: dict[str, Lanes] = {}


def lanes_here(work: Work) -> Lanes:
    """The lanes of the job in this process: a worker serves many batches and keeps its handles warm between them."""
    key = to_json(work.job)
    if key not in _lanes_of_this_process:
        _lanes_of_this_process.clear()
        producer = work.job.producer if work.job.guarantee is Guarantee.EXACTLY_ONCE else None
        _lanes_of_this_process[key] = Lanes(work.job, work.driver, work.topic_ids, producer, keep_warm=True)
    lanes = _lanes_of_this_process[key]
    lanes.for_driver(work.driver, work.topic_ids)
    return lanes
