"""A pipeline on real brokers without Spark, and its group in the brokers' logs, for tests of the rules."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import ownership, positions
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import positions_consumer
from ackwright_stream.delivery.at_most_once import claim_and_process
from ackwright_stream.delivery.batch import Work
from ackwright_stream.delivery.exactly_once import process_and_advance
from ackwright_stream.driver import check
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Position, Range, Task
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.kafka import offsets
from ackwright_stream.sinks.kafka.lane_records import record_key
from ackwright_stream.sinks.kafka.sink import TopicSink, for_driver
from integration.support.members import alter_offsets, delete_group, empty_group, end_membership
from integration.support.pipelines import LANES, create_topics, document, feed, job_of, read
from minimal_job import with_member
from waiting import ANSWER, wait_until

GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")


@dataclass(frozen=True)
class BatchWork(Work):
    """The work of a batch, and its one task."""

    task: Task


@dataclass(frozen=True)
class Pipe:
    """A pipeline with two source partitions of five records each and two sink partitions."""

    job: JobSpec
    admin: AdminClient
    sinks: list[TopicSink] = field(default_factory=list)  # of the drivers that have run

    @property
    def servers(self) -> str:
        return self.job.cluster.bootstrap_servers

    @property
    def source(self) -> str:
        return self.job.source.topics[0]

    @property
    def sink(self) -> str:
        topic = self.job.sink_of(KafkaSink).topic
        assert topic
        return topic

    def lane(self, partition: int = 0) -> Lane:
        return Lane(self.source, partition)

    def take(self, previous: int | None = None) -> Ownership:
        cluster = Cluster(self.job)
        return ownership.take(self.job, cluster, self._driver_sink(cluster), previous)

    def join(self) -> Lanes:
        """A first driver that has joined the group and has not yet read or moved a position."""
        cluster = Cluster(self.job)
        sink = self._driver_sink(cluster)
        topology = cluster.topology()
        return Lanes(self.job, sink, sink.join(topology.lanes), 1, topology.topic_ids)

    def _driver_sink(self, cluster: Cluster) -> TopicSink:
        self.sinks.append(for_driver(self.job, cluster))
        return self.sinks[-1]

    def end_drivers(self) -> None:
        """Ends every driver as a crash does: the group has the last one's member until its session ends."""
        for sink in self.sinks:
            if sink._member is not None:
                end_membership(sink._member)
        self.sinks.clear()

    def empty_group(self) -> None:
        """Ends every driver and its membership. Offsets can then be set by hand."""
        self.end_drivers()
        empty_group(self.admin, self.job)

    def check(self) -> None:
        """What a driver checks before it starts."""
        check(self.job)

    def require_sole_use(self) -> None:
        """What a driver checks before it restarts."""
        registry.for_driver(self.job, Cluster(self.job)).require_sole_use()

    def lanes(self, owned: Ownership, topic_ids: dict[str, str] | None = None) -> Lanes:
        """The lanes as a task of another process has them."""
        sink = registry.for_tasks(self.job, transactional=True)
        ids = self.ids() if topic_ids is None else topic_ids
        return Lanes(self.job, sink, owned.lanes.membership, owned.driver, ids)

    def ids(self) -> dict[str, str]:
        return dict(Cluster(self.job).topology().topic_ids)

    def work(self, owned: Ownership, *ranges: Range) -> BatchWork:
        task = Task(0, ranges, tuple(range(len(ranges))))
        return BatchWork(self.job, owned.driver, owned.topic_ids, owned.lanes.membership, task)

    def positions(self, partitions: int = 2) -> dict[int, int]:
        """The positions of lanes that have one; waits for pending ones."""
        read_ = offsets.read(positions_consumer(self.job), map(self.lane, range(partitions)), ANSWER)
        return {lane.partition: at.offset for lane, at in read_.items() if at}

    def driver_at(self, partition: int = 0) -> int:
        position = offsets.read(positions_consumer(self.job), [self.lane(partition)], ANSWER)[self.lane(partition)]
        assert position is not None
        return position.driver

    def written(self, isolation: str = "read_committed") -> list[bytes | None]:
        return sorted((r.value for r in read(self.servers, self.sink, isolation=isolation)), key=str)

    def records(self) -> dict[bytes, Any]:
        """The records of this pipeline's lanes, and its final positions, in the lanes topic."""
        prefix = record_key(self.job.group, Lane("", 0)).split(b"/")[0] + b"/"
        return {
            r.key: json.loads(r.value)
            for r in read(self.servers, LANES)
            if r.key and r.key.startswith(prefix) and r.value and b"/@" not in r.key
        }

    def forget_positions(self) -> None:
        """Deletes the group after its drivers have ended."""
        self.empty_group()
        delete_group(self.admin, self.job.group)

    def set_positions(self, offset: int) -> None:
        """Sets the offsets by hand after the drivers have ended, as kafka-consumer-groups --reset-offsets does."""
        self.empty_group()
        self.alter_positions(offset)

    def alter_positions(self, offset: int) -> None:
        """The admin call of set_positions(). Raises KafkaException if the group has a member."""
        alter_offsets(self.admin, self.job.group, self._at(offset, (0, 1)))

    def move_without_membership(self, offset: int, *partitions: int) -> None:
        """Sets the offsets as another program can while a driver is a member: in a transaction without a membership."""
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": f"{self.source}-other-program"})
        producer.init_transactions(ANSWER)
        producer.begin_transaction()
        group = positions_consumer(self.job).consumer_group_metadata()
        producer.send_offsets_to_transaction(self._at(offset, partitions or (0, 1)), group, ANSWER)
        producer.commit_transaction(ANSWER)

    def accepting(self, offset: int) -> Pipe:
        """The pipeline after a person has accepted that both lanes were set to this offset."""
        accepted = positions.fingerprint((self.lane(n), Position(offset)) for n in (0, 1))
        return replace(self, job=replace(self.job, accepted_positions=accepted))

    def _at(self, offset: int, partitions: Iterable[int]) -> list[TopicPartition]:
        return [TopicPartition(self.source, n, offset) for n in partitions]

    def expire(self, offset: int) -> None:
        """The source's records before the offset are gone, as by retention."""
        asked = [TopicPartition(self.source, n, offset) for n in (0, 1)]
        for answer in self.admin.delete_records(asked).values():
            answer.result(ANSWER)

    def _id(self) -> str | None:
        try:
            return self.ids()[self.source]
        except JobError:  # a broker that does not know the topic yet
            return None

    def recreate_source(self) -> None:
        self.recreate_source_now()
        wait_until(lambda: not self.positions(), "the deleted topic's positions are gone")

    def recreate_source_now(self) -> None:
        """The same without a wait for positions, which a transaction that is open keeps pending."""
        before = self.ids()[self.source]
        self.admin.delete_topics([self.source])[self.source].result(ANSWER)
        wait_until(lambda: self.source not in self.admin.list_topics(timeout=ANSWER).topics, "the topic is gone")
        create_topics(self.servers, self.source, partitions=2)
        wait_until(lambda: self._id() not in (before, None), "the topic is another one")


NewPipe = Callable[..., Pipe]


def pipes(kafka: EmbeddedKafka, admin: AdminClient, directory: Path) -> Iterator[NewPipe]:
    """Yields a function that creates topics and a jobspec under a unique name: new(guarantee, records=5, **source).

    Ends the drivers of all of them afterwards.
    """
    pipelines: list[Pipe] = []

    def make(guarantee: str = "exactly-once", records: int = 5, **spec: Any) -> Pipe:
        name = f"rules-{uuid.uuid4().hex[:8]}"
        source, sink = f"{name}-in", f"{name}-out"
        create_topics(kafka.bootstrap_servers, source, sink, partitions=2)
        if records:
            feed(kafka.bootstrap_servers, source, 2, 0, records)
        document_ = document(kafka.bootstrap_servers, name, guarantee, source, sink)
        document_["spec"]["source"] |= spec
        pipelines.append(Pipe(job_of(document_, directory), admin))
        return pipelines[-1]

    yield make
    for pipe in pipelines:
        pipe.end_drivers()


def add_partitions(p: Pipe, count: int) -> None:
    p.admin.create_partitions([NewPartitions(p.source, count)])[p.source].result(ANSWER)
    wait_until(lambda: len(Cluster(p.job).topology().lanes) == count, f"{count} partitions")


def with_short_session(p: Pipe) -> Pipe:
    """The group removes its member, once it is silent, after the shortest time that brokers allow."""
    return replace(p, job=with_member(p.job, session_timeout_ms="6000"))


def rows(*values: bytes) -> Iterator[pa.RecordBatch]:
    columns: dict[str, Any] = {"key": [b"k"] * len(values), "value": list(values)}
    yield pa.RecordBatch.from_pydict(columns, schema=pa.schema([("key", pa.binary()), ("value", pa.binary())]))


def torn(p: Pipe) -> Iterator[pa.RecordBatch]:
    """The rows of a task that fails when its first row is in the sink's log."""
    yield from rows(b"torn")
    wait_until(lambda: p.written("read_uncommitted") == [b"torn"], "the row is in the log")
    raise JobError(Reason.BATCH_FAILED, "torn")


def reason_of(call: Callable[[], object]) -> Reason:
    with pytest.raises(JobError) as caught:
        call()
    return caught.value.reason


# ------------------------------------------------ a group in the brokers' logs


class Batch(NamedTuple):
    """The header of a record batch in __consumer_offsets that holds offsets of a group."""

    producer_id: int
    epoch: int
    transactional: bool


def offset_batches(kafka: EmbeddedKafka, group: str) -> list[Batch]:
    """Every batch of the group's offsets in the brokers' log files (Kafka's message format v2, KIP-98)."""
    leader = kafka.coordinator(group).node
    batches = []
    for segment in sorted((kafka.directory / f"data-{leader}").glob("__consumer_offsets-*/*.log")):
        log = segment.read_bytes()
        at = 0
        while at + 61 <= len(log) and (length := struct.unpack_from(">i", log, at + 8)[0]) > 0:
            attributes, producer_id, epoch = struct.unpack_from(">h20xqh", log, at + 21)
            # The key of an offset record starts with its version (0 or 1) and the group; other records have other keys.
            key = struct.pack(">hh", 1, len(group)) + group.encode()
            if key in log[at + 61 : at + 12 + length]:
                batches.append(Batch(producer_id, epoch, bool(attributes & 0x10)))
            at += 12 + length
    return batches


def everything(pipe: Pipe, owned: Ownership) -> None:
    """Moves positions in each way that the job has."""
    match pipe.job.guarantee:
        case "exactly-once":
            for start, until, batches in ((0, 2, rows(b"a")), (2, 3, iter(()))):
                work = pipe.work(owned, Range(pipe.lane(), start, until))
                assert process_and_advance(work, work.task, batches)[0] is Outcome.DONE
        case "at-most-once":
            work = pipe.work(owned, Range(pipe.lane(), 0, 2))
            assert claim_and_process(work, work.task, rows(b"a"))[0] is Outcome.DONE
            owned.lanes.advance(0, [Range(pipe.lane(), 2, 3)])  # an abandoned range
        case "at-least-once":
            owned.lanes.advance_all([Range(pipe.lane(), 0, 2)])
            owned.lanes.advance_all([Range(pipe.lane(), 0, 3), Range(pipe.lane(1), 0, 3)])


def is_pending(p: Pipe) -> bool:
    """Whether the position of lane 0 belongs to a transaction that has not ended.

    The brokers report it; a read that times out may have other causes.
    """
    asked = ConsumerGroupTopicPartitions(p.job.group, [TopicPartition(p.source, 0)])
    answer = wait_until(
        lambda: p.admin.list_consumer_group_offsets([asked], require_stable=True)[p.job.group].result(ANSWER),
        "the coordinator answers",
    )
    (partition,) = answer.topic_partitions
    return partition.error is not None and partition.error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT
