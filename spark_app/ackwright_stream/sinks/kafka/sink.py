"""Kafka as a sink: rows go to topics, positions are the committed offsets of the pipeline's consumer group."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream import topic_ids, topic_limits
from ackwright_stream.cluster import Brokers, Cluster
from ackwright_stream.connection import settings, timed_out
from ackwright_stream.errors import JobError
from ackwright_stream.group_members import driver_member
from ackwright_stream.jobspec import Guarantee, JobSpec, KafkaSink, Reason
from ackwright_stream.positions import SOURCE, Lane, Position, cluster_replaced
from ackwright_stream.sinks.base import Membership, Owner, Records, Rows
from ackwright_stream.sinks.kafka import checks, columns, lane_ids, lane_records, offsets, spark_kafka
from ackwright_stream.sinks.kafka.decisions import DecisionTopic
from ackwright_stream.sinks.kafka.driver_transactions import DriverTransactions
from ackwright_stream.sinks.kafka.enqueue import Enqueue, OnFailure, enqueuer
from ackwright_stream.sinks.kafka.lag_mirror import LagMirror
from ackwright_stream.sinks.kafka.markers import Markers, create, of_membership
from ackwright_stream.sinks.kafka.membership import Member
from ackwright_stream.sinks.kafka.plain_writer import PlainWriter
from ackwright_stream.sinks.kafka.transactions import SlotTransactions, transactional_id
from ackwright_stream.sinks.kafka.trial import SizeTrial, size_trial
from ackwright_stream.sinks.letter_topic import LetterProducer, records_within_limit
from ackwright_stream.spark_internals.execution import Execution, execution_of

_THREADS = 16
_TRANSACTION_TIMEOUT = "transaction.timeout.ms"  # only producers that commit rows have it


class TopicSink:
    """The sink of one pipeline, in a driver or in a worker. Connects when it is first used."""

    supports = frozenset(Guarantee)
    takes_dead_letters = True

    def __init__(
        self,
        job: JobSpec,
        cluster: Cluster | None = None,  # the source's; None in a worker, and without access to brokers
        *,
        # Producer settings of transactions that carry rows; None: they carry none.
        producer: Mapping[str, str] | None = None,
        keep_warm: bool = False,  # whether a slot's next transaction is prepared in advance
    ) -> None:
        self.spec = job.sink_of(KafkaSink)
        decisions = self.spec.positions.decisions_topic if job.state else None
        own_topics = (*self.spec.named_topics, self.spec.positions.lanes_topic)
        own_topics = (*own_topics, decisions) if decisions else own_topics
        self._on_own_cluster = own_topics if self.spec.cluster else ()
        self.topics = () if self.spec.cluster else own_topics
        self.spark_writer, self.staging = SparkKafkaWriter(job), None
        self.job, self._source_or_none = job, cluster
        self._timeout = job.operation_timeout_ms / 1000
        self._producer_settings, self._keep_warm = producer, keep_warm
        self.transactions_carry_rows = producer is not None
        self._member: Member | None = None
        self._markers: Markers | None = None  # of the last join
        self._lag: LagMirror | None = None  # only if the sink has its own cluster
        self._address: str | None = None  # as announced
        self._unrecorded: frozenset[Lane] = frozenset()
        self._driver_transactions: DriverTransactions | None = None
        self.plain_writer = PlainWriter(self, self._timeout)
        self.decisions = DecisionTopic(self, decisions) if decisions else None
        self._letters: LetterProducer | None = None

    def check(self, rows: DataFrame | None = None) -> None:
        if self._on_own_cluster:
            self._brokers.require(self._on_own_cluster)
        checks.require_supported_brokers(self._brokers, self.job.transaction_timeout_ms)
        self.require_sole_use()

    def require_permission(self) -> None:
        return  # check() reads the permissions

    def require_sole_use(self) -> None:
        checks.require_own_group(self._brokers, self.job.group, self.spec.positions.instance_id)

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output, self.spec)

    def prepare(self, rows: DataFrame) -> None:
        return

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        return columns.worker_columns(rows, self.spec)

    def join(self, lanes: Iterable[Lane]) -> Membership:
        lanes = list(lanes)
        self._markers = self._prepared_markers(lanes)
        if self._member is not None:
            self._member.release()
        self._member = Member(self.job, self._markers)
        committed = self._committed(lanes)
        lanes_topic = self.spec.positions.lanes_topic
        brokers = self.spec.brokers(self.job.cluster)
        lanes_topic_id = topic_ids.reader(self.job, brokers)([lanes_topic])[lanes_topic]
        self._driver_transactions = DriverTransactions(self.job, self.transactions, lanes_topic_id)
        if self.spec.cluster is None:  # earlier releases knew one cluster
            lane_ids.take_from_older_release(self.job, self.transactions, self._member.membership, committed)
        self._end_open_transactions(committed)
        self._unrecorded = self._lanes_without_record(committed, lanes_topic_id)
        if self.spec.cluster:
            if self._lag:
                self._lag.stop()
            self._lag = LagMirror(self.job, self.peek, lanes)
        return self._member.membership

    def _prepared_markers(self, lanes: Iterable[Lane]) -> Markers:
        """Where the lanes' offsets are committed, which exists then. Raises JobError(CLUSTER_REPLACED).

        The source's brokers are asked again by each join, because an address may lead to another cluster meanwhile.
        """
        if self.spec.cluster is None:
            return Markers()
        source = self._source.id()
        self._require_recorded(source)
        markers = Markers(self.spec.positions.markers(source))
        create(self._brokers, markers, lanes)
        return markers

    def _require_recorded(self, source: str) -> None:
        """Raises JobError(CLUSTER_REPLACED) if the lanes are of another cluster, and that loss is not accepted."""
        records = self.records()
        if records.source in ("", source):
            return
        accepted = self.job.accepted_losses
        lost = [
            (lane, topic_id)
            for lane, topic_id in sorted(records.lanes.items())
            if lane.topic in self.job.source.topics and topic_id != accepted.get(lane.topic)
        ]
        if lost:
            topic, topic_id = lost[0][0].topic, lost[0][1]
            current = topic_ids.reader(self.job)([topic])[topic]
            raise cluster_replaced(records.source, source, topic, topic_id, current)

    def _lanes_without_record(self, committed: Iterable[TopicPartition], lanes_topic_id: str) -> frozenset[Lane]:
        """Lanes whose records were lost with the lanes topic. They get them again when the driver settles.

        Offsets of an earlier release do not name the lanes topic that has the record.
        """
        named = {Lane(x.topic, x.partition): offsets.recorded_in(x) for x in committed if offsets.is_own(x)}
        nameless = {lane for lane, name in named.items() if not name}
        if nameless:
            nameless -= self.records().lanes.keys()
        return frozenset(nameless | {lane for lane, name in named.items() if name not in ("", lanes_topic_id)})

    def _end_open_transactions(self, committed: Iterable[TopicPartition]) -> None:
        """Ends the transactions that an older driver and its tasks left open. committed: the lanes' offsets.

        For liveness alone: they cannot commit any more, but until they have ended, their offsets keep the positions
        from being read and their rows hold up readers of the sink.
        """
        # Offsets that another program has set do not tell how many slots there were.
        slots = max((offsets.slots_of(x) or self.job.slots for x in committed), default=0)
        ids = [
            self.spec.positions.driver_transactional_id,
            *(transactional_id(self.job, slot) for slot in range(slots)),
        ]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="ended") as pool:
            for producer in pool.map(self.transactions.initialised, ids):
                self.transactions.release(producer)

    def is_member(self) -> bool:
        return self._member is not None and self._member.is_current

    def member(self) -> str | None:
        return self._member.id if self._member else None

    def announce(self, address: str) -> None:
        self._address = address

    def owner(self) -> Owner | None:
        group, instance_id = self.job.group, self.spec.positions.instance_id
        member = self._brokers.query(
            f"listing the members of group {group}",
            lambda admin, timeout: driver_member(admin, group, instance_id, timeout),
        )
        if member is None:
            return None
        recorded = lane_records.records(self.job)
        return Owner(member, recorded.addresses.get(member), bool(recorded.final))

    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> SlotTransaction:
        return SlotTransaction(self, self.transactions, slot, lanes, membership)

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        committed = self.transactions.committed(lanes, self.current_markers())
        return {lane: offsets.to_position(x) for lane, x in committed.items()}

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        return {Lane(x.topic, x.partition): offsets.to_position(x) for x in self._committed(lanes)}

    def _committed(self, lanes: Iterable[Lane]) -> list[TopicPartition]:
        """The committed offsets as they are now, without waiting for transactions that have not ended."""
        return offsets.read_committed(self._unstable_reader, lanes, self._timeout, self.current_markers())

    def current_markers(self) -> Markers:
        """Those of the last join; before the first, those with which it will begin."""
        if self.spec.cluster is None:
            return Markers()
        return self._markers or Markers(self.spec.positions.markers(self._source.id()))

    @cached_property
    def _unstable_reader(self) -> Consumer:
        unstable = self.spec.positions.uncommitted_reads
        return Consumer(settings(self.spec.brokers(self.job.cluster), self.job.positions_consumer, unstable))

    def records(self) -> Records:
        return lane_records.records(self.job)

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self._as_driver.stop(positions, membership)
        if self._lag:
            self._lag.stop({lane: position.offset for lane, position in positions.items()})

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        lost: dict[Lane, Mapping[str, Any] | None] = dict.fromkeys(self._unrecorded & positions.keys())
        driver = None
        if self.spec.cluster and self._markers:
            # Partitions that the source has got since the join: without its marker a lane cannot be initialised.
            create(self._brokers, self._markers, positions)
        if self._lag:
            self._lag.add(positions)
        if self._member and positions:
            number = max(position.driver for position in positions.values())
            source = self._source.id() if self.spec.cluster else ""
            driver = lane_records.driver_value(self._member.id, self._address, number, source)
        self._as_driver.settle(positions, {**lost, **records}, membership, accepted, driver)

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        self._as_driver.advance(positions, membership)

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        return self.plain_writer.write(rows, letters)

    def write_dead_letters(self, letters: pa.RecordBatch) -> None:
        if self.spec.dead_letters is None:
            raise JobError(Reason.UNEXPECTED, "this pipeline has no dead-letter topic; report this")
        if self._letters is None:
            self._letters = LetterProducer(self.spec.brokers(self.job.cluster), self.spec.dead_letters, self._timeout)
        self._letters.write(records_within_limit([letters], self.spec.dead_letters, self.job.group))

    def trial(self) -> AbstractContextManager[SizeTrial] | None:
        if self.job.state:  # a row of its output is not of one record
            return None
        limit_of = topic_limits.reader(self._brokers)
        return size_trial(self.job.producer, self.job.sink_options, limit_of, self.spec.topic)

    def output_ends(self) -> Mapping[str, Any]:
        topic = self.spec.topic
        return checks.topic_ends(self._brokers, topic) if topic else {}  # {}: the records themselves name their topics

    @cached_property
    def transactions(self) -> SlotTransactions:
        """The tasks' transactions, connected."""
        return SlotTransactions(self.job, self._producer_settings, keep_warm=self._keep_warm)

    @property
    def _as_driver(self) -> DriverTransactions:
        if self._driver_transactions is None:
            raise JobError(Reason.UNEXPECTED, "positions are moved by a driver that has not taken the pipeline")
        return self._driver_transactions

    def enqueue(self, producer: Producer, rows: Rows, letters: Rows = ()) -> int:
        """Passes all rows to the producer, and then all dead letters; returns the number of rows.

        (docs/protocol.md#rule-12)
        """
        count = self.enqueue_to(producer, self.spec.topic, rows)
        if self.spec.dead_letters:
            records = records_within_limit(letters, self.spec.dead_letters, self.job.group)
            self.enqueue_to(producer, self.spec.dead_letters.topic, records)
        return count

    def enqueue_to(self, producer: Producer, topic: str | None, rows: Rows, on_failure: OnFailure | None = None) -> int:
        """Passes all rows to the producer; returns their number. topic: of rows that name none.

        on_failure: as enqueuer() takes it.
        """
        # With a slow broker the queue may be full for as long as the transaction may last.
        timeout = max(self._timeout, self.job.transaction_timeout_ms / 1000)
        put: Enqueue = enqueuer(producer, topic, timeout=timeout, on_failure=on_failure)
        try:
            return sum(put(batch) for batch in rows)
        finally:
            put.close()

    @property
    def _source(self) -> Cluster:
        if self._source_or_none is None:
            raise JobError(Reason.UNEXPECTED, "only a driver reads topics and groups from the brokers")
        return self._source_or_none

    @cached_property
    def _brokers(self) -> Brokers:
        """Those of rows and positions."""
        source = self._source
        return Brokers(self.spec.cluster, self._timeout) if self.spec.cluster else source


class SlotTransaction:
    """The lanes of one task, with a producer that is good for one transaction."""

    def __init__(
        self,
        sink: TopicSink,
        transactions: SlotTransactions,
        slot: int,
        lanes: Sequence[Lane],
        membership: Membership,
    ) -> None:
        self._sink, self._transactions, self._slot, self._membership = sink, transactions, slot, membership
        self._started = time.monotonic()
        self._producer, self._committed = transactions.open(slot, lanes, of_membership(sink.job, membership)[0])
        self.positions: Mapping[Lane, Position | None] = {
            lane: offsets.to_position(x) for lane, x in self._committed.items()
        }

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = (), letters: Rows = ()) -> int:
        targets = [
            offsets.to_offset(self._sink.job, lane, position, offsets.recorded_in(self._committed[lane]))
            for lane, position in positions.items()
        ]
        try:
            return self._transactions.commit(
                self._producer,
                targets,
                self._membership,
                lambda producer: self._sink.enqueue(producer, rows, letters),
                next_slot=self._slot,
            )
        except JobError as e:
            if not self._sink.transactions_carry_rows:
                raise  # a smaller batch would not shorten it
            limit = self._sink.job.transaction_timeout_ms / 1000
            raise timed_out(e, time.monotonic() - self._started, limit) or e from e.__cause__

    def release(self) -> None:
        self._transactions.release(self._producer, self._slot)


class SparkKafkaWriter:
    """Spark's own Kafka sink. Its producers wait for the acknowledgements that JobSpec.sink_options sets."""

    def __init__(self, job: JobSpec) -> None:
        self.job = job

    def columns(self, output: DataFrame) -> DataFrame:
        present = columns.present_columns(output, self.job.sink_of(KafkaSink))
        return spark_kafka.require_existing_topics(present, self.job)

    def write(self, rows: DataFrame, execution: Execution, lanes: Sequence[Lane]) -> None:
        sink = self.job.sink_of(KafkaSink)
        cluster = sink.brokers(self.job.cluster)
        if sink.preserve_partition:
            partitions = F.array(*(F.lit(lane.partition) for lane in lanes))
            execution = execution_of(rows.withColumn(SOURCE, partitions[F.col(SOURCE)]))  # Spark's name of it as well
        producer = {**cluster.java, **self.job.sink_options, "bootstrap.servers": cluster.bootstrap_servers}
        topic = None if "topic" in rows.columns else sink.topic
        spark_kafka.write(rows.sparkSession, execution, producer, topic)


def for_driver(job: JobSpec, cluster: Cluster | None) -> TopicSink:
    """The sink as a driver uses it. cluster: None without access to brokers."""
    # The driver of a stateful pipeline writes the rows itself: in its transactions, or by a producer without any.
    in_transactions = job.state is not None and _TRANSACTION_TIMEOUT in job.producer
    return TopicSink(job, cluster, producer=job.producer if in_transactions else None)


def for_tasks(job: JobSpec, *, transactional: bool) -> TopicSink:
    """The sink as a worker's tasks use it. transactional: rows go through the transactions, not through write()."""
    return TopicSink(job, producer=job.producer if transactional else None, keep_warm=True)
