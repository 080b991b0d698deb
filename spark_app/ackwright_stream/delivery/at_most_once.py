"""At-most-once: the positions of a task's lanes move first, in a separate transaction (a claim).

Rows that are then not written are lost and counted. The task makes the claim. No setting of Spark's keeps a task
from running twice (the loss of an executor is not counted as a failure), but a second attempt finds the position
moved and does nothing. (docs/protocol.md#rule-6)"""

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
)
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Task
from ackwright_stream.reasons import REASONS


class AtMostOnce:
    """Claims, then writes."""

    counts_expired = True
    transactional = False

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def batch_limit(self, lanes: int) -> int | None:
        return self._job.source.max_offsets_per_trigger

    def survives(self, error: JobError) -> bool:
        """A malformed record's batch is abandoned, however many there are in a row."""
        return error.reason is Reason.MALFORMED_RECORD

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        return Output(in_tasks(lanes.sink.worker_columns(output), lanes, claim_and_process))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        ranges, results = batch.ranges, run(batch)
        skipped = tuple(r for i, outcome, _ in results if outcome is Outcome.SKIPPED for r in batch.tasks[i].ranges)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(records for _, _, records in results),
            abandoned=sum(r.until - r.start for r in skipped),
            skipped=tuple(r.lane for r in skipped),
        )

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """Claims the rest of a failed batch without writing it, if the batch itself is at fault.

        Without that, the same record would fail forever. What the batch's tasks had claimed counts as abandoned as
        well: how much of it was written is not known."""
        if not REASONS[error.reason].blames_batch:
            return 0
        abandoned = 0
        for task in tasks:
            try:
                lanes.advance(task.slot, task.ranges)
            except JobError as e:
                if REASONS[e.reason].excuses_batch:
                    raise
                continue
            abandoned += sum(r.until - r.start for r in task.ranges)
        return abandoned


def claim_and_process(work: Work, task: Task, rows: Iterator[pa.RecordBatch]) -> tuple[Outcome, int]:
    """One task. A claim whose outcome is unknown raises, and nothing is written."""
    lanes = work.lanes(transactional=False)
    outcome, _ = lanes.advance(task.slot, task.ranges)
    if outcome is Outcome.SKIPPED:
        drain(rows)  # an earlier attempt claimed these ranges: whatever became of them, they are not written twice
        return outcome, 0
    fault_point("claimed", *task.lanes)
    return outcome, lanes.sink.write(task.lanes, passing_fault_points(rows, task.lanes))
