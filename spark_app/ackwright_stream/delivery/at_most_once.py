"""At-most-once: a lane's position moves first, in a transaction of its own; what is then not processed is lost and counted.

The claim is made inside the task, by the lane's own id: no setting of Spark's keeps a task from running twice (the loss of an executor is
not counted as a failure), but a second attempt finds the position moved and does nothing. (rule 6)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyspark.sql import DataFrame

from ackwright_stream.connection import settings
from ackwright_stream.delivery.batch import Batch, BatchResult, Work, drain, enqueue_all, in_tasks, lanes_here, run
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome, Range
from ackwright_stream.points import reach
from ackwright_stream.reasons import REASONS
from ackwright_stream.sinks.enqueue import enqueuer
from ackwright_stream.sinks.kafka_columns import worker_columns


class AtMostOnce:
    """Claims, then processes. lanes: the driver's own, for ranges that it gives up."""

    def __init__(self, job: JobSpec, driver: int, topic_ids: Mapping[str, str], lanes: Lanes) -> None:
        self._job, self._driver, self._topic_ids, self._lanes = job, driver, topic_ids, lanes

    def planned(self, shaped: DataFrame) -> DataFrame:
        return in_tasks(worker_columns(shaped), Work(self._job, self._driver, self._topic_ids), claim_and_process)

    def deliver(self, batch: Batch) -> BatchResult:
        ranges, results = batch.ranges, run(batch)
        skipped = tuple(ranges[i] for i, outcome, _ in results if outcome is Outcome.SKIPPED)
        return BatchResult(
            positions={r.lane: r.until for r in ranges},
            records=sum(records for _, _, records in results),
            abandoned=sum(r.until - r.start for r in skipped),
            skipped=tuple(r.lane for r in skipped),
        )

    def abandon(self, ranges: tuple[Range, ...]) -> int:
        """Claims what a failed batch left unclaimed, without processing it, or the same bad record would fail for ever. What its tasks had
        claimed counts as given up as well: how much of that was processed, nobody knows."""
        given_up = 0
        for r in ranges:
            try:
                self._lanes.advance(r)
            except JobError as e:
                if REASONS[e.reason].excuses_batch:
                    raise
                continue
            given_up += r.until - r.start
        return given_up


_producer_of_this_process: list[tuple[dict[str, Any], Producer]] = []


def _plain_producer(job: JobSpec) -> Producer:
    """A producer without acknowledgements holds nothing that a later batch could be confused by: it is kept, while its settings are what
    they were. With a login that counts no more it would lose all that it is given, and not say so."""
    wanted = settings(job.cluster, job.producer)
    if not _producer_of_this_process or _producer_of_this_process[0][0] != wanted:
        _producer_of_this_process[:] = [(wanted, Producer(dict(wanted)))]
    return _producer_of_this_process[0][1]


def claim_and_process(work: Work, wanted: Range, batches: Iterator[pa.RecordBatch]) -> tuple[Outcome, int]:
    """One lane's task. A claim whose outcome is unknown raises, and nothing is processed."""
    outcome, _ = lanes_here(work).advance(wanted)
    if outcome is Outcome.SKIPPED:
        drain(batches)  # an earlier attempt claimed this range: whatever became of it, it is not processed twice
        return outcome, 0
    reach("claimed", wanted.lane)
    sink, timeout = work.job.sink, work.job.operation_timeout_ms / 1000
    producer = _plain_producer(work.job)
    put = enqueuer(producer, sink.topic, wanted.lane.partition if sink.preserve_partition else None, timeout=timeout)
    records = enqueue_all(put, batches, lambda: reach("mid-produce", wanted.lane))
    producer.flush(timeout)
    return outcome, records
