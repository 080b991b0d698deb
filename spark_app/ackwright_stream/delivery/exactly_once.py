"""Exactly-once: a lane's rows and its position change in one transaction, which the lane's task makes."""

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
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Range

_REDUCTION = 4


class ExactlyOnce:
    """Lanes commit independently of one another; one lane's transaction is atomic across all topics that it writes."""

    counts_expired = False

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def batch_limit(self, lanes: int) -> int | None:
        """The user's limit, or one with which a lane's rows are written before the sink ends the transaction.

        Without a limit, a backlog would take too long, and each attempt at the same range would fail like the last.
        """
        chosen, per_lane = self._job.source.max_offsets_per_trigger, self._job.source.offsets_per_lane
        return chosen if chosen is not None or per_lane is None else max(1, lanes) * per_lane

    def next_limit(self, ranges: tuple[Range, ...], seconds: float) -> int | None:
        """A quarter of the batch, if it took as long as a transaction may."""
        if seconds * 1000 < self._job.transaction_timeout_ms:
            return None
        return max(1, sum(r.until - r.start for r in ranges) // _REDUCTION)

    def survives(self, error: JobError) -> bool:
        return False

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        return Output(in_tasks(lanes.sink.worker_columns(output), lanes, process_and_advance))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        ranges, results = batch.ranges, run(batch)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(records for _, _, records in results),
            skipped=tuple(ranges[i].lane for i, outcome, _ in results if outcome is Outcome.SKIPPED),
        )

    def abandon(self, ranges: tuple[Range, ...], error: JobError, lanes: Lanes) -> int:
        """Never: what did not commit is read again."""
        return 0


def process_and_advance(work: Work, batch: Range, rows: Iterator[pa.RecordBatch]) -> tuple[Outcome, int]:
    """One lane's task. A range whose rows were all filtered out commits as well, or the position would lag."""
    lanes = work.lanes(transactional=True)
    outcome, records = lanes.advance(batch, passing_fault_points(rows, batch.lane))
    if outcome is Outcome.SKIPPED:
        drain(rows)
    return outcome, records
