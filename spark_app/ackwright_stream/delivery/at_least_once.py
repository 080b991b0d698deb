"""At-least-once: Spark's own Kafka sink writes and waits for the acknowledgements; then the driver advances all lanes at once.

The driver's advances are the one case in which an epoch carries several transactions. A late copy of one can at worst commit a position
whose records were delivered: one that is ahead, or of an earlier advance, behind which records are delivered again. (rule 2; variant
alo-driver of the model)
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream import positions
from ackwright_stream.connection import calling, positions_consumer, settings, translate
from ackwright_stream.delivery.batch import Batch, BatchResult
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Range
from ackwright_stream.points import reach
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks import spark_kafka
from ackwright_stream.sinks.kafka_columns import present_columns
from ackwright_stream.spark_internals.execution import execution_of


class AtLeastOnce:
    """Writes, then advances. owner: the producer of the pipeline's own id, initialised once at the driver's start."""

    def __init__(self, job: JobSpec, driver: int, topic_ids: Mapping[str, str], owner: Producer) -> None:
        self._job, self._driver, self._topic_ids, self._owner = job, driver, topic_ids, owner
        self._timeout = job.operation_timeout_ms / 1000
        self._reader = positions_consumer(job)

    def planned(self, shaped: DataFrame) -> DataFrame:
        return present_columns(shaped)

    def deliver(self, batch: Batch) -> BatchResult:
        rows, plan, ranges = batch.rows, batch.plan, batch.ranges
        sink, cluster = self._job.sink, self._job.cluster
        if sink.preserve_partition:  # a task is a lane, so the task's number tells the partition
            partitions = F.array(*(F.lit(r.lane.partition) for r in ranges))
            plan = execution_of(rows.withColumn("partition", partitions[F.spark_partition_id()]))
        producer = {**cluster.java, **self._job.sink_options, "bootstrap.servers": cluster.bootstrap_servers}
        spark_kafka.write(rows.sparkSession, plan, producer, None if "topic" in rows.columns else sink.topic)
        # From here to the end of advance(): delivered, not yet advanced. A driver that dies here delivers this batch again.
        reach("before-advance")
        self.advance({r.lane: r.until for r in ranges})
        reach("after-advance")
        return BatchResult({r.lane: r.until for r in ranges}, records=None)  # Spark's sink does not tell (row_counts)

    def abandon(self, ranges: tuple[Range, ...]) -> int:
        """Never: what was not acknowledged is delivered again."""
        return 0

    def advance(self, targets: Mapping[Lane, int]) -> None:
        """Moves the lanes forwards, in one transaction; a lane that is further on stays. Raises JobError."""
        found = positions.read(self._reader, targets, self._timeout)
        for lane, committed in found.items():
            at = positions.standing(
                lane, committed, self._topic_ids.get(lane.topic, ""), self._job.accepted_losses.get(lane.topic)
            )
            if at is None:
                raise JobError(
                    Reason.POSITION_LOST, f"lane {lane} has no position any more; it is not known what was delivered"
                )
            positions.check_incarnation(lane, at, self._driver)
        forwards = [lane for lane, until in targets.items() if (at := found[lane]) is not None and at.offset < until]
        if forwards:
            commit(self._owner, self._reader, self._timeout, [self._target(lane, targets[lane]) for lane in forwards])

    def _target(self, lane: Lane, until: int) -> TopicPartition:
        metadata = Position(until, self._topic_ids.get(lane.topic, ""), self._driver).metadata()
        return TopicPartition(lane.topic, lane.partition, until, metadata)


def owner(job: JobSpec) -> Producer:
    """The producer of the pipeline's own id, initialised: it fences the advances of every driver before this one."""
    producer = Producer(
        settings(job.cluster, job.positions_producer, {"transactional.id": job.driver_transactional_id})
    )
    calling(f"taking pipeline {job.group}", lambda: producer.init_transactions(job.operation_timeout_ms / 1000))
    return producer


def commit(producer: Producer, reader: Consumer, timeout: float, offsets: list[TopicPartition]) -> None:
    """One transaction of positions alone. After an error the producer must not be used again: the driver starts anew."""
    try:
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), timeout)
        producer.commit_transaction(timeout)
    except KafkaException as e:
        raise translate(e.args[0], f"advancing {len(offsets)} positions") from e
