"""What the guarantees share: a batch, its result, and how a task of it reports from a Python worker to the driver."""

from __future__ import annotations

import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, to_json
from ackwright_stream.lanes import Lanes, Outcome, Range
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.enqueue import Enqueue

_RESULT = pa.schema(
    [
        ("task", pa.int32()),
        ("outcome", pa.string()),
        ("records", pa.int64()),
        ("reason", pa.string()),
        ("message", pa.string()),
    ]
)
_RESULT_TYPE = from_arrow_schema(_RESULT)  # once: Spark would ask its JVM to parse a text for each batch
# Running the task again cannot help, and would fence whoever owns the lane now: the driver decides.
_FOR_THE_DRIVER = frozenset(
    {
        Reason.POSITION_CONFLICT,
        Reason.POSITION_LOST,
        Reason.SUPERSEDED,
        Reason.TOPIC_REPLACED,
        Reason.AUTHENTICATION_FAILED,
        Reason.AUTHORIZATION_FAILED,
    }
)


@dataclass(frozen=True)
class Work:
    """What a task needs, pickled into every task of a batch. ranges: by the task's partition id."""

    job: JobSpec
    driver: int
    topic_ids: Mapping[str, str]
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class Batch:
    """One batch of the stream. rows: as foreachBatch gives them; plan: the stream's own, which they come from (Java's QueryExecution);
    ranges: by the task's partition id."""

    rows: DataFrame
    plan: Any
    ranges: tuple[Range, ...]


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch: the offset that each lane is at now, records written (None: not known), offsets claimed but not processed."""

    positions: Mapping[Lane, int]
    records: int | None = 0
    abandoned: int = 0
    skipped: tuple[Lane, ...] = field(default=())


class Delivery(Protocol):
    """One guarantee."""

    def deliver(self, batch: Batch) -> BatchResult:
        """Carries the batch to the sink and advances the positions, in the order that the guarantee asks for. Raises JobError."""
        ...

    def abandon(self, ranges: tuple[Range, ...]) -> int:
        """After a failed batch: gives its ranges up where the guarantee says so; returns the number of offsets given up."""
        ...


Task = Callable[[Work, Range, Iterator[pa.RecordBatch]], tuple[Outcome, int]]


def run(rows: DataFrame, work: Work, task: Task) -> list[tuple[int, Outcome, int]]:
    """Runs `task` on every partition of a batch's rows; returns (task, outcome, records) for each. Raises JobError, also when Spark reports
    fewer results than there are ranges: a lane that nobody answers for is not delivered."""
    answers = rows.mapInArrow(partial(_in_worker, work, task), _RESULT_TYPE).collect()
    failed = next((r for r in answers if r.reason is not None), None)
    if failed is not None:
        raise JobError(Reason(failed.reason), failed.message)
    if sorted(r.task for r in answers) != list(range(len(work.ranges))):
        raise JobError(Reason.UNEXPECTED, f"{len(work.ranges)} tasks were started, {len(answers)} answered")
    return [(r.task, Outcome(r.outcome), r.records) for r in answers]


def _in_worker(work: Work, task: Task, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    if context is None:
        raise JobError(Reason.UNEXPECTED, "a task runs in a Python worker of Spark, not here")
    index = context.partitionId()
    try:
        outcome, records = task(work, work.ranges[index], batches)
        yield _result(index, outcome.value, records)
    except JobError as e:
        if e.reason not in _FOR_THE_DRIVER:
            raise  # Spark runs the task again, if the guarantee lets it; it starts at the init, and the position tells
        yield _result(index, None, 0, e.reason.value, e.message)
    finally:
        _forget_archives()


def _forget_archives() -> None:
    """PySpark begins every task by importlib.invalidate_caches(), and from Python 3.10 on that reads the directory of each zip on the path
    anew: of pyspark.zip, that is 0.2 to 0.5 s a task. What is loaded stays loaded; a later import finds the archive again."""
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def _result(index: int, outcome: str | None, records: int, reason: str | None = None, message: str | None = None) -> pa.RecordBatch:
    columns: Iterable[object] = ([index], [outcome], [records], [reason], [message])
    return pa.RecordBatch.from_arrays([pa.array(c, t) for c, t in zip(columns, _RESULT.types, strict=True)], schema=_RESULT)


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
        producer = work.job.producer if work.job.guarantee is Guarantee.EXACTLY_ONCE else {}
        _lanes_of_this_process[key] = Lanes(work.job, work.driver, work.topic_ids, producer, keep_warm=True)
    lanes = _lanes_of_this_process[key]
    lanes.for_driver(work.driver, work.topic_ids)
    return lanes
