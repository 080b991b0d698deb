"""Exactly-once: the rows of a task's lanes and their positions change in one transaction, which the task makes.

With a sink that stages rows, the driver makes one for the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame

from ackwright_stream.delivery.batch import (
    Batch,
    BatchResult,
    Output,
    Work,
    drain,
    in_tasks,
    passing_fault_points,
    run,
    run_staged,
    stage,
    total,
)
from ackwright_stream.delivery.batch_size import limit_of_batches
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Task
from ackwright_stream.sinks.base import Rows, Sink, Staging


class ExactlyOnce:
    """Tasks commit independently of one another; a task's transaction is atomic across all topics that it writes."""

    counts_expired = False
    transactional = True

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def uses_workers(self, sink: Sink) -> bool:
        return True

    def moves_first(self, sink: Sink) -> bool:
        return False

    def batch_limit(self, lanes: int) -> int | None:
        return limit_of_batches(self._job, lanes)

    def survives(self, error: JobError) -> bool:
        return False

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        process = process_and_advance if lanes.sink.staging is None else stage
        return Output(in_tasks(lanes.sink.worker_columns(output), lanes, process))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        if lanes.sink.staging is not None:
            return _stage_and_advance(batch, lanes, lanes.sink.staging)
        ranges, results = batch.ranges, run(batch)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(a.records for a in results),
            skipped=tuple(lane for a in results if a.outcome is Outcome.SKIPPED for lane in batch.tasks[a.task].lanes),
            read=total(results),
        )

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """Never: what did not commit is read again."""
        return 0


def _stage_and_advance(batch: Batch, lanes: Lanes, staging: Staging) -> BatchResult:
    """Nothing is visible until the commit. If the driver dies before it, the files of its tasks are never committed."""
    rows, read = run_staged(batch)
    outcome, records = lanes.advance_staged(staging, batch.ranges, rows)
    targets = {r.lane: r.until for r in batch.ranges}
    return BatchResult(targets, records, skipped=tuple(targets) if outcome is Outcome.SKIPPED else (), read=read)


def process_and_advance(
    work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows = ()
) -> tuple[Outcome, int]:
    """One task. Ranges whose rows were all filtered out commit as well, or the positions would lag."""
    lanes = work.lanes(transactional=True)
    outcome, records = lanes.advance(task.slot, task.ranges, passing_fault_points(rows, task.lanes), letters)
    if outcome is Outcome.SKIPPED:
        drain(rows)
    return outcome, records
