"""What the job looks at before it touches anything: brokers, topics, group. Reads only."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.connection import (
    administrator,
    asking,
    calling,
    heard_of_by_all,
    positions_consumer,
    reach,
    settings,
    translate,
)
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.positions import Lane

T = TypeVar("T")

_SINCE_3_7 = "group.coordinator.rebalance.protocols"  # a broker setting that older brokers do not have
_VERIFICATION = "transaction.partition.verification.enable"


@dataclass(frozen=True)
class Topology:
    """Topics and partitions as they are now. topic_ids: by topic, of source topics; earliest, latest: offsets by lane."""

    topic_ids: Mapping[str, str]
    earliest: Mapping[Lane, int]
    latest: Mapping[Lane, int]

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(sorted(self.earliest))


class Cluster:
    """One admin connection, and the errors that it reports on the side."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._timeout = job.operation_timeout_ms / 1000
        self._errors: list[KafkaError] = []
        self._admin = self._connected()
        self._watcher = positions_consumer(job)

    def _connected(self) -> AdminClient:
        return administrator(self._job.cluster, self._errors)

    def _asking(self, what: str, ask: Callable[[AdminClient, float], T]) -> T:
        """Asks until there is an answer. A try without one gives the connection up: librdkafka's admin client sends its questions to the
        broker that it took for the controller, for minutes after that one has begun to hang (seen)."""

        def once(timeout: float) -> T:
            try:
                return ask(self._admin, timeout)
            except (KafkaException, TimeoutError):
                self._admin = self._connected()
                raise

        return asking(what, self._timeout, once)

    def check(self) -> None:
        """Everything that must be true before a driver may start. Raises JobError with the first thing that is not."""
        metadata = reach(self._admin, self._errors, self._job.cluster.bootstrap_servers, min(self._timeout, 15))
        needed = [
            *self._job.source.topics,
            *([self._job.sink.topic] if self._job.sink.topic else []),
            self._job.lanes_topic,
        ]
        missing = [t for t in needed if t not in metadata.topics or metadata.topics[t].error is not None]
        if missing:
            raise JobError(
                Reason.TOPIC_MISSING,
                f"no such topic: {', '.join(missing)}; create it, or list it under spec.topics",
            )
        self._check_brokers(sorted(metadata.brokers))
        self.check_group()

    def check_group(self) -> None:
        """Refuses a group that has members or ever had one: brokers accept our commits beside a member's, and let the offsets of such a
        group expire as a whole. (rule 10)"""
        listing = self._asking(
            "listing consumer groups", lambda admin, s: admin.list_consumer_groups(request_timeout=s).result(s)
        )
        for group in listing.valid:
            if group.group_id == self._job.group and not group.is_simple_consumer_group:
                raise JobError(
                    Reason.GROUP_IN_USE,
                    f"consumer group {self._job.group} is or was used by a subscribing consumer (state {group.state.name}); choose another "
                    "source.groupId, or delete the group if nobody needs it",
                )

    def topology(self) -> Topology:
        """The source topics' ids, partitions and offset bounds. The latest offset is that of a read_committed reader."""
        names = list(self._job.source.topics)

        def describe(admin: AdminClient, timeout: float) -> dict[str, Any]:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=timeout)
            return {topic: answer.result(timeout) for topic, answer in answers.items()}

        found = self._asking(f"describing {', '.join(names)}", describe)
        lanes = [Lane(t, p.id) for t, d in found.items() for p in d.partitions]
        return Topology(
            topic_ids={t: str(d.topic_id) for t, d in found.items()},
            earliest=self._offsets(lanes, OffsetSpec.earliest()),
            latest=self._offsets(lanes, OffsetSpec.latest()),
        )

    def ends(self, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        """The end of each lane as a read_committed reader sees it. Asked by a consumer, for it is asked all the time: librdkafka's admin
        client can end the process when a broker goes away under a request (an assertion in rd_kafka_enq_once_del_source_return, seen)."""
        answers = {}
        for lane in lanes:
            where = TopicPartition(lane.topic, lane.partition)
            bounds = calling(
                f"asking for the end of {lane}", partial(self._watcher.get_watermark_offsets, where, timeout=5)
            )
            if bounds is not None:
                answers[lane] = bounds[1]
        return answers

    def sink_now(self) -> dict[str, Any]:
        """The id of the sink's topic and the end of each partition, open transactions included, as a lane's record has them; empty if the
        records themselves name their topics."""
        topic = self._job.sink.topic
        if not topic:
            return {}
        described = self._asking(
            f"describing {topic}",
            lambda admin, s: admin.describe_topics(TopicCollection([topic]), request_timeout=s)[topic].result(s),
        )
        asked = {TopicPartition(topic, p.id): OffsetSpec.latest() for p in described.partitions}
        ends = self._asking(
            f"asking for the end of {topic}",
            lambda admin, s: _offsets(admin, asked, IsolationLevel.READ_UNCOMMITTED, s),
        )
        return {"topicId": str(described.topic_id), "ends": {str(at.partition): end for at, end in ends.items()}}

    def _offsets(self, lanes: Iterable[Lane], spec: OffsetSpec) -> Mapping[Lane, int]:
        asked = {TopicPartition(x.topic, x.partition): spec for x in lanes}
        if not asked:
            return {}
        return self._asking(
            "asking for the topics' offsets",
            lambda admin, timeout: _offsets(admin, asked, IsolationLevel.READ_COMMITTED, timeout),
        )

    def _check_brokers(self, brokers: list[int]) -> None:
        """Brokers before 3.7, or without verification, can leave a late offset commit pending for ever. (rule 11, KIP-890 part 1)"""
        resources = [ConfigResource(ResourceType.BROKER, str(b)) for b in brokers]
        answers = [
            self._admin.describe_configs([r], request_timeout=self._timeout)[r] for r in resources
        ]  # one broker a call: librdkafka
        for resource, future in zip(resources, answers, strict=True):
            try:
                found = future.result(self._timeout)  # of this very broker: there is no other to ask
            except KafkaException as e:
                if e.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                    return  # the operator's principal checks it; the job's may do without DescribeConfigs
                raise translate(e.args[0], f"reading the configuration of broker {resource.name}") from e
            if _SINCE_3_7 not in found:
                raise JobError(
                    Reason.BROKERS_UNSUPPORTED, f"broker {resource.name} is older than Kafka 3.7; upgrade it"
                )
            if found[_VERIFICATION].value != "true":
                raise JobError(
                    Reason.BROKERS_UNSUPPORTED,
                    f"broker {resource.name} has {_VERIFICATION}={found[_VERIFICATION].value}; set it to true",
                )


def recorded_lanes(job: JobSpec) -> dict[str, str]:
    """Which lanes of this pipeline were ever initialised, by "<group>/<topic>-<partition>", with the id of the topic as it was then.

    Reads the lanes topic as a read_committed reader, but up to the end that a read_uncommitted one sees: another pipeline's open
    transaction hides what follows it, and a record that is overlooked would let a lane begin anew. Raises JobError.

    The client looks for a group's coordinator, although it joins none and commits nothing here. It is the pipeline's own group, which the
    job may read anyhow: a name of its own would be one more right to grant, whose lack shows only if the refusal comes before the end.
    """
    consumer = Consumer(settings(job.cluster, job.lanes_consumer))
    timeout = job.operation_timeout_ms / 1000
    try:
        ends = _ends_of(job, job.lanes_topic, consumer, timeout)
        reading = {p for p, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(job.lanes_topic, p, 0) for p in reading])
        found: dict[str, str] = {}
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE,
                    f"{job.lanes_topic} could not be read to its end within {timeout:.0f} s; an open transaction of another pipeline may "
                    "hold it back, try again",
                )
            message = consumer.poll(0.5)
            if message is None:
                continue
            if not message.error():
                _record(found, job.group, message)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), "reading the lanes topic")
            elif message.offset() >= ends[message.partition()]:
                reading.discard(message.partition())
        return found
    finally:
        consumer.close()


def _ends_of(job: JobSpec, topic: str, consumer: Consumer, timeout: float) -> dict[int, int]:
    """The end of each partition, open transactions included."""
    partitions = calling(f"looking at {topic}", lambda: consumer.list_topics(topic, timeout)).topics[topic].partitions
    asked = {TopicPartition(topic, p): OffsetSpec.latest() for p in partitions}

    def ask(one_try: float) -> dict[Lane, int]:
        admin = AdminClient(
            settings(job.cluster)
        )  # kept until the answers are here: a client that is collected before never answers
        return _offsets(admin, asked, IsolationLevel.READ_UNCOMMITTED, one_try)

    ends = asking(f"asking for the end of {topic}", timeout, ask)
    return {lane.partition: end for lane, end in ends.items()}


def _offsets(
    admin: AdminClient, asked: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout: float
) -> dict[Lane, int]:
    answers = admin.list_offsets(dict(asked), isolation_level=isolation, request_timeout=timeout)
    with heard_of_by_all():
        return {Lane(p.topic, p.partition): answer.result(timeout).offset for p, answer in answers.items()}


def _record(found: dict[str, str], group: str, message: Message) -> None:
    key = message.key().decode()
    if not key.startswith(f"{group}/"):
        return
    if message.value() is None:
        found.pop(key, None)
    else:
        found[key] = str(json.loads(message.value())["topicId"])


def expired(position: int, earliest: int, guarantee: Guarantee) -> bool:
    """Whether records between the position and the first one that is left are gone, under a guarantee that must not lose them."""
    return position < earliest and guarantee is not Guarantee.AT_MOST_ONCE
