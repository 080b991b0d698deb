"""At-least-once: the whole batch is written and acknowledged; then the driver advances all lanes at once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream import row_counts
from ackwright_stream.delivery import dead_letters
from ackwright_stream.delivery.batch import (
    Batch,
    BatchResult,
    Output,
    Work,
    in_tasks,
    passing_fault_points,
    run,
    run_staged,
    stage,
    total,
)
from ackwright_stream.delivery.batch_size import limit_of_batches
from ackwright_stream.delivery.dead_letters import Counts, Instructions
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Task
from ackwright_stream.sinks.base import Rows, Sink, SparkWriter
from ackwright_stream.spark_internals.execution import merged

_METRICS = "ackwright_sink"
log = logging.getLogger(__name__)


class AtLeastOnce:
    """Writes, then advances."""

    counts_expired = False
    transactional = False

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def uses_workers(self, sink: Sink) -> bool:
        return sink.spark_writer is None

    def moves_first(self, sink: Sink) -> bool:
        return False

    def batch_limit(self, lanes: int) -> int | None:
        return limit_of_batches(self._job, lanes)

    def survives(self, error: JobError) -> bool:
        return False

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        writer = lanes.sink.spark_writer
        if writer is None:
            process = write if lanes.sink.staging is None else stage
            return Output(in_tasks(lanes.sink.worker_columns(output), lanes, process))
        rows = merged(writer.columns(output), lanes.job.slots)
        if row_counts.counted_by_spark(rows):
            return Output(rows)
        return Output(rows.observe(_METRICS, F.count(F.lit(1)).alias("records")), _METRICS)

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        records, read = _write(batch, lanes)
        # From here to the end of advance_all() the batch is delivered and not advanced. If the driver dies, it is
        # delivered again.
        fault_point("before-advance")
        lanes.advance_all(batch.ranges)
        fault_point("after-advance")
        return BatchResult({r.lane: r.until for r in batch.ranges}, records, read=read)

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """Never: what was not acknowledged is delivered again."""
        return 0


def _write(batch: Batch, lanes: Lanes) -> tuple[int, Counts]:
    """Writes the batch; returns the number of rows, as far as it is known by then, and what was read."""
    if lanes.sink.spark_writer is not None:
        limit = lanes.job.source.dead_letter_fraction
        if limit is None or batch.letters is None:
            return _write_by_spark(lanes.sink.spark_writer, batch), Counts()
        with dead_letters.instructed(batch.rows.sparkSession, Instructions(None)):
            records = _write_by_spark(lanes.sink.spark_writer, batch)
        # Before the positions move. What was written is written again when the batch is.
        read = dead_letters.observed(batch.execution)
        dead_letters.require_few(read, batch.letters.counts, limit)
        return records, read
    if lanes.sink.staging is None:
        answers = run(batch)
        return sum(a.records for a in answers), total(answers)
    rows, read = run_staged(batch)
    # If the outcome of this commit is unknown, the batch is delivered again.
    lanes.sink.staging.publish(rows, lanes.membership)
    return rows.records, read


def write(work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows = ()) -> tuple[Outcome, int]:
    """One task, for a sink without a writer of Spark's."""
    lanes = work.lanes(transactional=False)
    rows = passing_fault_points(rows, task.lanes)
    return Outcome.DONE, lanes.sink.write(task.lanes, rows, letters, membership=lanes.membership)


def _write_by_spark(writer: SparkWriter, batch: Batch) -> int:
    """Writes the batch; returns the number of rows as far as Spark counts it. A number that is observed comes later."""
    by_source = {source: r.lane for task in batch.tasks for source, r in zip(task.sources, task.ranges, strict=True)}
    writer.write(batch.rows, batch.execution, [by_source[source] for source in sorted(by_source)])
    if batch.metrics:
        return 0
    records = row_counts.rows_written(batch.execution)
    if records is None:
        log.warning("Spark does not count the records of this batch: they are missing in the number of records")
    return records or 0
