"""At-most-once: the positions of a task's lanes move first, in a separate transaction (a claim).

Rows that are then not written are lost and counted. The task makes the claim. No setting of Spark's keeps a task
from running twice (the loss of an executor is not counted as a failure), but a second attempt finds the position
moved and does nothing. (docs/protocol.md#rule-6)

With a sink that stages rows, the driver claims the whole batch before its tasks run, and commits what they staged."""

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
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Range, Task
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.base import Rows, Sink, Staging


class AtMostOnce:
    """Claims, then writes."""

    counts_expired = True
    transactional = False

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def uses_workers(self, sink: Sink) -> bool:
        return True

    def moves_first(self, sink: Sink) -> bool:
        return True

    def batch_limit(self, lanes: int) -> int | None:
        return limit_of_batches(self._job, lanes)

    def survives(self, error: JobError) -> bool:
        """A malformed record's batch is abandoned, however many there are in a row."""
        return error.reason is Reason.MALFORMED_RECORD

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        process = claim_and_process if lanes.sink.staging is None else stage
        return Output(in_tasks(lanes.sink.worker_columns(output), lanes, process))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        if lanes.sink.staging is not None:
            return _claim_and_publish(batch, lanes, lanes.sink.staging)
        ranges, results = batch.ranges, run(batch)
        skipped = tuple(r for a in results if a.outcome is Outcome.SKIPPED for r in batch.tasks[a.task].ranges)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(a.records for a in results),
            abandoned=sum(r.until - r.start for r in skipped),
            skipped=tuple(r.lane for r in skipped),
            read=total(results),
        )

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """Claims the rest of a failed batch without writing it, if the batch itself is at fault.

        Without that, the same record would fail forever. What the batch's tasks had claimed counts as abandoned as
        well: how much of it was written is not known."""
        if error.reason is Reason.TOO_MANY_DEAD_LETTERS:
            # The tasks that reported it had claimed their ranges, or the driver those of the whole batch.
            claimed = range(len(tasks)) if lanes.sink.staging is not None else error.slots
            return sum(r.until - r.start for slot in claimed for r in tasks[slot].ranges)
        if not REASONS[error.reason].blames_batch:
            return 0
        return sum(_abandon(lanes, task.slot, task.ranges) for task in tasks)


def _abandon(lanes: Lanes, slot: int, ranges: tuple[Range, ...]) -> int:
    """Claims the ranges, those that were claimed before included; returns the number of their offsets."""
    try:
        lanes.advance(slot, ranges)
    except JobError as e:
        # With a sink that moves one lane at a time a task may have died between two claims.
        if e.reason is Reason.POSITION_CONFLICT and len(ranges) > 1:
            return sum(_abandon(lanes, slot, (r,)) for r in ranges)
        if REASONS[e.reason].excuses_batch:
            raise
        return 0
    return sum(r.until - r.start for r in ranges)


def _claim_and_publish(batch: Batch, lanes: Lanes, staging: Staging) -> BatchResult:
    """A claim or a commit whose outcome is unknown raises, and is not repeated."""
    targets = {r.lane: r.until for r in batch.ranges}
    outcome, _ = lanes.advance(0, batch.ranges)
    if outcome is Outcome.SKIPPED:  # this driver claimed it before: whatever became of it, it is not written twice
        abandoned = sum(r.until - r.start for r in batch.ranges)
        return BatchResult(targets, abandoned=abandoned, skipped=tuple(targets))
    fault_point("claimed", *targets)
    rows, read = run_staged(batch)
    staging.publish(rows, lanes.membership)
    return BatchResult(targets, rows.records, read=read)


def claim_and_process(
    work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows = ()
) -> tuple[Outcome, int]:
    """One task. A claim whose outcome is unknown raises, and nothing is written."""
    lanes = work.lanes(transactional=False)
    outcome, _ = lanes.advance(task.slot, task.ranges)
    if outcome is Outcome.SKIPPED:
        drain(rows)  # an earlier attempt claimed these ranges: whatever became of them, they are not written twice
        return outcome, 0
    fault_point("claimed", *task.lanes)
    rows = passing_fault_points(rows, task.lanes)
    return outcome, lanes.sink.write(task.lanes, rows, letters, membership=lanes.membership)
