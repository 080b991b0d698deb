"""Kafka as a sink: rows go to topics, positions are the committed offsets of the pipeline's consumer group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import settings
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks import kafka_columns, spark_kafka
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.kafka import checks, lane_records
from ackwright_stream.sinks.kafka.driver_producer import DriverProducer
from ackwright_stream.sinks.kafka.enqueue import Enqueue, enqueuer
from ackwright_stream.sinks.kafka.transactions import LaneTransactions
from ackwright_stream.spark_internals.execution import Execution, execution_of


class TopicSink:
    """The sink of one pipeline, in a driver or in a worker. Connects when it is first used."""

    supports = frozenset(Guarantee)

    def __init__(
        self,
        job: JobSpec,
        cluster: Cluster | None = None,  # None in a worker, and where no broker may be asked
        *,
        # Producer settings of transactions that carry rows; None: they carry none.
        producer: Mapping[str, str] | None = None,
        keep_warm: bool = False,  # whether a lane's next transaction is prepared in advance
    ) -> None:
        self.topics = (*([job.sink.topic] if job.sink.topic else []), job.lanes_topic)
        self.spark_writer = SparkKafkaWriter(job)
        self._job, self._cluster_or_none = job, cluster
        self._timeout = job.operation_timeout_ms / 1000
        self._producer_settings, self._keep_warm = producer, keep_warm
        self._driver_producer: DriverProducer | None = None
        self._plain: tuple[dict[str, Any], Producer] | None = None

    def check(self) -> None:
        checks.require_supported_brokers(self._cluster)
        self.require_sole_use()

    def require_sole_use(self) -> None:
        checks.require_unused_group(self._cluster, self._job.group)

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return kafka_columns.to_sink_columns(output, self._job.sink)

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        return kafka_columns.worker_columns(rows)

    def fence_drivers(self) -> None:
        self._driver_producer = DriverProducer(self._job)

    def open(self, lanes: Sequence[Lane]) -> LaneTransaction:
        (lane,) = lanes  # a transactional.id belongs to one lane
        return LaneTransaction(self, self.transactions, lane)

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        return self.transactions.read(lanes)

    def recorded_lanes(self) -> Mapping[Lane, str]:
        return lane_records.recorded_lanes(self._job)

    def advance(self, positions: Mapping[Lane, Position]) -> None:
        if self._driver_producer is None:
            raise JobError(Reason.UNEXPECTED, "positions are advanced by a driver that has not taken the pipeline")
        self._driver_producer.commit(positions)

    def write(self, lane: Lane, rows: Rows) -> int:
        producer = self.plain_producer()
        records = self.enqueue(producer, lane, rows)
        producer.flush(self._timeout)
        return records

    def output_ends(self) -> Mapping[str, Any]:
        topic = self._job.sink.topic
        return checks.topic_ends(self._cluster, topic) if topic else {}  # {}: the records themselves name their topics

    @cached_property
    def transactions(self) -> LaneTransactions:
        """The lanes' transactions, connected."""
        return LaneTransactions(self._job, self._producer_settings, keep_warm=self._keep_warm)

    def enqueue(self, producer: Producer, lane: Lane, rows: Rows) -> int:
        """Passes all rows to the producer; returns their number. (docs/protocol.md#rule-12)"""
        sink = self._job.sink
        partition = lane.partition if sink.preserve_partition else None
        put: Enqueue = enqueuer(producer, sink.topic, partition, timeout=self._timeout)
        try:
            return sum(put(batch) for batch in rows)
        finally:
            put.close()

    def plain_producer(self) -> Producer:
        """The producer of write(), kept while its settings are the same.

        It holds nothing that could confuse a later batch. A new login makes a new producer: without acknowledgements,
        one whose login has expired loses all rows and does not report it.
        """
        current = settings(self._job.cluster, self._job.producer)
        if self._plain is None or self._plain[0] != current:
            self._plain = (current, Producer(dict(current)))
        return self._plain[1]

    @property
    def _cluster(self) -> Cluster:
        if self._cluster_or_none is None:
            raise JobError(Reason.UNEXPECTED, "only a driver asks the brokers about topics and groups")
        return self._cluster_or_none


class LaneTransaction:
    """One lane, fenced, with a producer that is good for one transaction."""

    def __init__(self, sink: TopicSink, transactions: LaneTransactions, lane: Lane) -> None:
        self._sink, self._transactions, self._lane = sink, transactions, lane
        self.producer, position = transactions.fence(lane)
        self.positions: Mapping[Lane, Position | None] = {lane: position}

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = ()) -> int:
        return self._transactions.commit(
            self.producer,
            self._lane,
            positions[self._lane],
            lambda producer: self._sink.enqueue(producer, self._lane, rows),
        )

    def initialise(self, positions: Mapping[Lane, Position], output_ends: Mapping[str, Any] | None = None) -> None:
        position = positions[self._lane]
        record = self._transactions.record(self._lane, position, output_ends)
        self._transactions.commit(self.producer, self._lane, position, record)

    def release(self) -> None:
        self._transactions.release(self.producer, self._lane)


class SparkKafkaWriter:
    """Spark's own Kafka sink. Its producers wait for the acknowledgements that JobSpec.sink_options asks for."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job

    def columns(self, output: DataFrame) -> DataFrame:
        return kafka_columns.present_columns(output)

    def write(self, rows: DataFrame, execution: Execution, lanes: Sequence[Lane]) -> None:
        sink, cluster = self._job.sink, self._job.cluster
        if sink.preserve_partition:  # a task is a lane, so the task's number tells the partition
            partitions = F.array(*(F.lit(lane.partition) for lane in lanes))
            execution = execution_of(rows.withColumn("partition", partitions[F.spark_partition_id()]))
        producer = {**cluster.java, **self._job.sink_options, "bootstrap.servers": cluster.bootstrap_servers}
        topic = None if "topic" in rows.columns else sink.topic
        spark_kafka.write(rows.sparkSession, execution, producer, topic)


def for_driver(job: JobSpec, cluster: Cluster | None) -> TopicSink:
    """The sink as a driver uses it. cluster: None where no broker may be asked."""
    return TopicSink(job, cluster)


def for_tasks(job: JobSpec, *, transactional: bool) -> TopicSink:
    """The sink as a worker's tasks use it. transactional: rows go through the transactions, not through write()."""
    return TopicSink(job, producer=job.producer if transactional else None, keep_warm=True)
