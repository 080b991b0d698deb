"""What the guarantees share: a batch, its result, and how a task in a Python worker reports to the driver."""

from __future__ import annotations

import json
import sys
import zipimport
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream.delivery import dead_letters
from ackwright_stream.delivery.dead_letters import Counts, Window
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import LANE, SOURCE, UNMERGED, Lane, Range, Task
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import Failure
from ackwright_stream.sinks.base import Membership, Rows, Sink, Staged, StagedRows
from ackwright_stream.spark_internals.arrow import map_in_arrow, spark_schema
from ackwright_stream.spark_internals.execution import Execution, merged
from ackwright_stream.state_log import StateChain
from ackwright_stream.task_input import require_complete_input
from ackwright_stream.worker_state import STATE

_ANSWER = pa.schema(
    [
        ("task", pa.int32()),
        ("ranges", pa.string()),
        ("outcome", pa.string()),
        ("records", pa.int64()),
        ("read", pa.int64()),  # records of the source, and of them
        ("letters", pa.int64()),  # those that are dead letters; both only of pipelines with dead letters
        ("staged", pa.binary()),  # as Staging.stage() returned it; null: nothing
        ("failure", pa.string()),  # Failure.as_json() as text; null: none
    ]
)
_TASKS = "ackwright.tasks"  # the property of a batch's Spark job that holds the ranges of its tasks


@dataclass(frozen=True)
class Work:
    """What every task of a stream needs."""

    job: JobSpec
    driver: int
    topic_ids: Mapping[str, str]
    membership: Membership

    def lanes(self, *, transactional: bool) -> Lanes:
        """The lanes, in this process. transactional: whether rows go through their transactions."""
        sink = STATE.sink(self.job, transactional=transactional)
        return Lanes(self.job, sink, self.membership, self.driver, self.topic_ids, ids_now=STATE.topic_ids(self.job))


@dataclass(frozen=True)
class Output:
    """What the stream computes."""

    rows: DataFrame
    # The observed metrics whose field `records` counts the rows; None: deliver() returns their number.
    metrics: str | None = None


@dataclass(frozen=True)
class Batch:
    """One micro-batch of the stream."""

    rows: DataFrame  # as foreachBatch passes it
    execution: Execution  # of the stream, of which the rows are the result
    tasks: tuple[Task, ...]  # by the number of the task
    metrics: str | None = None  # as Output.metrics
    letters: Window | None = None  # of its query; None: the pipeline has no dead letters
    number: int = 0  # Spark's, of a query
    # Of a stateful pipeline; None: it is stateless.
    query: StreamingQuery | None = None
    chain: StateChain | None = None  # of the query

    @property
    def ranges(self) -> tuple[Range, ...]:
        """Of all tasks."""
        return tuple(r for task in self.tasks for r in task.ranges)


@dataclass(frozen=True)
class BatchResult:
    """What became of a batch."""

    positions: Mapping[Lane, int]  # where each lane is now
    records: int = 0  # rows written, as far as deliver() counts them
    abandoned: int = 0  # offsets
    skipped: tuple[Lane, ...] = ()  # lanes whose range was committed before
    late: int = 0  # rows that state has left out, as spark_internals.state.Evaluated.late_rows
    read: Counts = field(default_factory=Counts)  # only of pipelines with dead letters


class Delivery(Protocol):
    """One guarantee: the order of writing and moving, and what a failure means for it."""

    transactional: bool  # whether a task's rows go through its transaction, with their positions
    counts_expired: bool  # whether records that expired before they were read are counted as lost, instead of a halt

    def uses_workers(self, sink: Sink) -> bool:
        """Whether rows are written by Python workers, and not by Spark's own writer."""
        ...

    def moves_first(self, sink: Sink) -> bool:
        """Whether positions move before rows are written, so that what a failed batch had claimed is lost."""
        ...

    def batch_limit(self, lanes: int) -> int | None:
        """How many offsets a batch may have; None: any number."""
        ...

    def survives(self, error: JobError) -> bool:
        """Whether the driver continues after this error, although others would halt.

        It continues at once if the failed batch could be abandoned, else after a back-off.
        """
        ...

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        """What the stream computes, of what Sink.to_sink_columns() returned."""
        ...

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        """Writes the batch and advances the positions, in the guarantee's order. Raises JobError."""
        ...

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """Advances the positions over a failed batch, if the guarantee allows it.

        Returns the number of offsets that were abandoned.
        """
        ...


# Takes rows and dead letters. Returns the outcome, the number of rows, and, if it stages them, what Staging.stage()
# returned.
Process = Callable[[Work, Task, Iterator[pa.RecordBatch], Rows], tuple[Outcome, int] | tuple[Outcome, int, Staged]]


class Answer(NamedTuple):
    """What a task reports."""

    task: int
    outcome: Outcome
    records: int
    staged: Staged | None = None
    read: Counts = Counts()


def in_tasks(rows: DataFrame, lanes: Lanes, process: Process) -> DataFrame:
    """A stream whose tasks run `process` on their rows, and answer with one row each.

    There are at most as many tasks as JobSpec.slots.

    It is part of the stream's own query, so that each row goes through one physical plan: a frame that is derived from
    foreachBatch's frame is analysed for each batch, and comes behind the stream's own plan.
    """
    work = Work(lanes.job, lanes.driver, lanes.topic_ids, lanes.membership)
    return map_in_arrow(merged(rows, lanes.job.slots), partial(_in_worker, work, process), spark_schema(_ANSWER))


def stage(work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows = ()) -> tuple[Outcome, int, Staged]:
    """One task, for a sink whose driver commits. The files of an attempt that does not answer are never committed.

    Its dead letters are durable when it answers, so they precede each commit that needs its answer.
    """
    sink = work.lanes(transactional=False).sink
    if sink.staging is None:
        raise JobError(Reason.UNEXPECTED, "the sink stages no rows; report this")
    records, staged = sink.staging.stage(passing_fault_points(rows, task.lanes))
    fault_point("staged", *task.lanes)
    written = False
    for batch in letters:
        sink.write_dead_letters(batch)
        written = True
    if written:
        fault_point("letters-written", *task.lanes)
    return Outcome.DONE, records, staged


def run_staged(batch: Batch) -> tuple[StagedRows, Counts]:
    """Runs a batch whose tasks are stage(); returns what they staged and read. Raises JobError, as run() does."""
    answers = run(batch)
    return StagedRows(tuple(a.staged for a in answers if a.staged), sum(a.records for a in answers)), total(answers)


def run(batch: Batch) -> list[Answer]:
    """Runs a batch of a stream that in_tasks() returned; returns the answer of each task.

    Raises JobError, also if a task did not answer or answered for a range of another batch: its lane is not delivered.
    """
    tasks = json.dumps(
        [
            [
                (r.lane.topic, r.lane.partition, r.start, r.until, source)
                for r, source in zip(t.ranges, t.sources, strict=True)
            ]
            for t in batch.tasks
        ]
    )
    spark = batch.rows.sparkSession
    spark.sparkContext.setLocalProperty(_TASKS, tasks)
    with dead_letters.instructed(spark, batch.letters.instructions if batch.letters else None):
        answers = sorted(batch.rows.collect(), key=lambda a: int(a.task))
    failures = {a.task: _failure(a.failure) for a in answers if a.failure is not None}
    if failures:
        raise _decisive(failures)
    if [(a.task, a.ranges) for a in answers] != [(t.slot, repr(t.ranges)) for t in batch.tasks]:
        answered = ", ".join(f"{a.task}: {a.ranges}" for a in answers)
        raise JobError(
            Reason.UNEXPECTED,
            f"the {len(batch.tasks)} tasks of a batch answered for other ranges ({answered}); report this",
        )
    done = [Answer(a.task, Outcome(a.outcome), a.records, a.staged, Counts(a.read, a.letters)) for a in answers]
    # A task that skips its ranges counts nothing, and Spark does.
    if batch.letters is not None and all(a.outcome is Outcome.DONE for a in done):
        dead_letters.require_all(total(done), dead_letters.observed(batch.execution))
    return done


def total(answers: Iterable[Answer]) -> Counts:
    """What all tasks have read."""
    return sum((a.read for a in answers), Counts())


def _failure(text: str) -> JobError:
    return JobError.from_failure(Failure.of_json(json.loads(text)))


def _decisive(failures: Mapping[int, JobError]) -> JobError:
    """The failure that decides what becomes of the batch, with the slots of all tasks that failed for its reason."""
    error = min(failures.values(), key=_rank)
    error.slots = tuple(slot for slot, other in failures.items() if other.reason is error.reason)
    return error


def _rank(error: JobError) -> int:
    """The failure with the lowest rank decides what becomes of a batch of which several tasks failed.

    A batch that timed out must become smaller, also if it was fenced elsewhere at the same time.
    """
    if REASONS[error.reason].permanent:
        return 0
    return 1 if error.reason is Reason.TRANSACTION_TIMED_OUT else 2


def drain(rows: Iterator[pa.RecordBatch]) -> None:
    """Reads rows that are not needed, so that Spark can use the Python worker again."""
    for _ in rows:
        pass


def passing_fault_points(rows: Iterator[pa.RecordBatch], lanes: Iterable[Lane]) -> Iterator[pa.RecordBatch]:
    """The rows, with the fault point mid-produce after each batch that the sink has accepted."""
    for batch in rows:
        yield batch
        fault_point("mid-produce", *lanes)


def _in_worker(work: Work, process: Process, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    tasks = context.getLocalProperty(_TASKS) if context else None
    if context is None or tasks is None:
        raise JobError(
            Reason.UNEXPECTED, f"this task does not know its ranges: the property {_TASKS} is missing; report this"
        )
    slot = context.partitionId()
    inputs = [
        (Range(Lane(topic, partition), start, until), source)
        for topic, partition, start, until, source in json.loads(tasks)[slot]
    ]
    task = Task(slot, tuple(r for r, _ in inputs), tuple(source for _, source in inputs))
    try:
        with dead_letters.of_task(work.job) as letters:
            done = process(work, task, with_partitions(require_complete_input(rows, STATE.input), task), letters)
        outcome, records, *staged = done
        yield _answer(
            task,
            outcome=outcome.value,
            records=records,
            read=letters.counts.records,
            letters=letters.counts.letters,
            staged=staged[0] if staged else None,
        )
    except JobError as e:
        if not REASONS[e.reason].driver_decides:
            # Spark runs the task again, if the guarantee allows it; it starts by fencing, and the positions decide
            raise
        yield _answer(task, failure=json.dumps(e.failure.as_json()))
    finally:
        _forget_archives()


def with_partitions(rows: Iterator[pa.RecordBatch], task: Task) -> Iterator[pa.RecordBatch]:
    """The rows, with what the task knows of their lanes in place of Spark's numbers.

    With SOURCE, the lanes' partitions, in place of UNMERGED; with LANE, the lanes' numbers. Other rows are unchanged.
    """
    partitions = pa.array([r.lane.partition for r in task.ranges], pa.int32())
    sources = pa.array(task.sources, pa.int32())
    for batch in rows:
        changed = batch
        if (at := batch.schema.get_field_index(UNMERGED)) >= 0:
            changed = changed.set_column(at, SOURCE, partitions.take(pc.index_in(batch.column(at), sources)))
        if (at := batch.schema.get_field_index(LANE)) >= 0:
            changed = changed.set_column(at, LANE, pc.index_in(batch.column(at), sources))
        yield changed


def _forget_archives() -> None:
    """Makes importlib forget the zip archives on the path.

    PySpark begins every task with importlib.invalidate_caches(), which reads the directory of each known archive again
    from Python 3.10 on: of pyspark.zip, that is 0.2 to 0.5 s a task. Modules stay loaded; a later import finds the
    archive again.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            del sys.path_importer_cache[path]


def _answer(task: Task, **columns: object) -> pa.RecordBatch:
    empty = {"outcome": None, "records": 0, "read": 0, "letters": 0, "staged": None, "failure": None}
    row = {"task": task.slot, "ranges": repr(task.ranges), **empty, **columns}
    return pa.RecordBatch.from_pylist([row], schema=_ANSWER)
