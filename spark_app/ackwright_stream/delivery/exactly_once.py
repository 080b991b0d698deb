"""Exactly-once: a lane's output and its position in one transaction, made by the lane's task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from ackwright_stream.delivery.batch import Batch, BatchResult, Work, drain, enqueue_all, in_tasks, lanes_here, run
from ackwright_stream.jobspec import Guarantee, JobSpec
from ackwright_stream.lanes import Outcome, Range
from ackwright_stream.points import reach
from ackwright_stream.sinks.enqueue import enqueuer
from ackwright_stream.sinks.kafka_columns import worker_columns


def limit(job: JobSpec, lanes: int) -> int | None:
    """How many offsets a batch may have. A lane's rows have to be through before the coordinator ends its transaction, or each attempt at
    the same range ends like the last."""
    chosen, per_lane = job.source.max_offsets_per_trigger, job.source.offsets_per_lane
    return chosen if chosen is not None or per_lane is None else max(1, lanes) * per_lane


def smaller(job: JobSpec, ranges: Sequence[Range], seconds: float) -> int | None:
    """How many offsets the next batch may have after one that failed after so many seconds; None: as many as before, for no transaction
    was too long."""
    outlasted = job.guarantee is Guarantee.EXACTLY_ONCE and seconds * 1000 >= job.transaction_timeout_ms
    return max(1, sum(r.until - r.start for r in ranges) // 4) if outlasted else None


class ExactlyOnce:
    """Lanes commit independently of one another; one lane's transaction is atomic across all the topics that it writes."""

    def __init__(self, job: JobSpec, driver: int, topic_ids: Mapping[str, str]) -> None:
        self._job, self._driver, self._topic_ids = job, driver, topic_ids

    def planned(self, shaped: DataFrame) -> DataFrame:
        return in_tasks(worker_columns(shaped), Work(self._job, self._driver, self._topic_ids), process_and_advance)

    def deliver(self, batch: Batch) -> BatchResult:
        ranges, results = batch.ranges, run(batch)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(records for _, _, records in results),
            skipped=tuple(ranges[i].lane for i, outcome, _ in results if outcome is Outcome.SKIPPED),
        )

    def abandon(self, ranges: tuple[Range, ...]) -> int:
        """Never: what did not commit is read again."""
        return 0


def process_and_advance(work: Work, wanted: Range, batches: Iterator[pa.RecordBatch]) -> tuple[Outcome, int]:
    """One lane's task. A range whose rows were all filtered away commits all the same, or the position would lag."""
    sink = work.job.sink

    def write(producer: Producer) -> int:
        partition = wanted.lane.partition if sink.preserve_partition else None
        put = enqueuer(producer, sink.topic, partition, timeout=work.job.operation_timeout_ms / 1000)
        return enqueue_all(put, batches, lambda: reach("mid-produce", wanted.lane))

    outcome, records = lanes_here(work).advance(wanted, write)
    if outcome is Outcome.SKIPPED:
        drain(batches)
    return outcome, records
