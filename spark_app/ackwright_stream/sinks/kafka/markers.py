"""Where the offset of a lane is committed: in the source's partition, or in its marker on the sink's own cluster.

A transaction of Kafka is of one cluster. If the sink has its own, the positions have to be there, together with the
output. The group's coordinator accepts an offset of any partition that exists there, and compares it with no log. So an
empty topic, the marker, has as many partitions as the source topic, and a lane's position is the group's offset of that
partition of it. The marker's name has the id of the source's cluster: positions of another cluster are other positions.

See docs/protocol.md#two-clusters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Brokers
from ackwright_stream.connection import calling
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.base import Membership

_PAUSE_S = 0.05
_KNOWN_S = 10.0  # until every broker should know of a new partition
# The brokers' own factor: whether a marker's partition has a leader does not matter, because nobody reads or writes it.
_DEFAULT_REPLICAS = -1
_DONE_BEFORE = frozenset({KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.INVALID_PARTITIONS})  # by another driver


@dataclass(frozen=True)
class Markers:
    """The names of the topics in which the lanes' offsets are committed."""

    prefix: str = ""  # in front of the source topic's name; empty: its own partitions, on the one cluster there is

    @property
    def cluster(self) -> str:
        """The id of the source's cluster, which has no dot in it; empty if there is one cluster."""
        return self.prefix.removesuffix(".").rpartition(".")[2]

    def topic(self, source: str) -> str:
        return self.prefix + source

    def committed(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Offsets of source partitions as they are committed."""
        return [_renamed(x, self.topic(x.topic)) for x in partitions]

    def of_source(self, committed: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Committed offsets, without errors among them, as those of source partitions."""
        return [_renamed(x, x.topic.removeprefix(self.prefix)) for x in committed]


def _renamed(of: TopicPartition, topic: str) -> TopicPartition:
    """The same offset of another topic. confluent-kafka takes no None for an offset without metadata."""
    return TopicPartition(topic, of.partition, of.offset, *([] if of.metadata is None else [of.metadata]))


def membership_with(markers: Markers, group_metadata: bytes) -> Membership:
    """The membership for tasks: the group's metadata, behind the markers of the driver that has joined.

    Tasks do not read the id of the source's cluster again: another answer would be other positions.
    """
    return markers.prefix.encode() + b"\n" + group_metadata if markers.prefix else group_metadata


def of_membership(job: JobSpec, membership: Membership) -> tuple[Markers, bytes]:
    """The markers and the group's metadata of a membership."""
    if job.sink_of(KafkaSink).cluster is None:
        return Markers(), membership
    prefix, _, group_metadata = membership.partition(b"\n")
    return Markers(prefix.decode()), group_metadata


def create(brokers: Brokers, markers: Markers, lanes: Iterable[Lane]) -> None:
    """Creates the marker's partition of each lane that has none, and waits until the brokers know it.

    Before a lane is initialised: the coordinator refuses offsets of a partition that does not exist. A marker that was
    deleted is created again, without its positions, which the lanes' records then show to be lost. Raises JobError.
    """
    needed: Counter[str] = Counter()
    for lane in lanes:
        needed[markers.topic(lane.topic)] = max(needed[markers.topic(lane.topic)], lane.partition + 1)
    if not needed:
        return
    present = _partitions(brokers, needed)
    for topic, number in needed.items():
        if topic not in present:
            _create(brokers, topic, number)
        elif present[topic] < number:
            _grow(brokers, topic, number)
    if any(present.get(topic, 0) < number for topic, number in needed.items()):
        _wait_until_known(brokers, needed)


def _partitions(brokers: Brokers, topics: Iterable[str]) -> dict[str, int]:
    """The number of partitions of those of the topics that exist, as one broker knows them."""
    described = brokers.query("reading the topics", lambda admin, timeout: admin.list_topics(timeout=timeout)).topics
    return {t: len(described[t].partitions) for t in topics if t in described and described[t].error is None}


def _create(brokers: Brokers, topic: str, number: int) -> None:
    def request(admin: AdminClient) -> None:
        new = NewTopic(topic, number, _DEFAULT_REPLICAS)
        admin.create_topics([new], request_timeout=brokers.timeout)[topic].result(brokers.timeout)

    _change(brokers, f"creating topic {topic}", request)


def _grow(brokers: Brokers, topic: str, number: int) -> None:
    def request(admin: AdminClient) -> None:
        more = NewPartitions(topic, number)
        admin.create_partitions([more], request_timeout=brokers.timeout)[topic].result(brokers.timeout)

    _change(brokers, f"adding partitions to topic {topic}", request)


def _change(brokers: Brokers, what: str, request: Callable[[AdminClient], None]) -> None:
    try:
        calling(what, lambda: request(brokers.admin))
    except JobError as e:
        cause = e.__cause__
        if not (isinstance(cause, KafkaException) and cause.args[0].code() in _DONE_BEFORE):
            raise


def _wait_until_known(brokers: Brokers, needed: Counter[str]) -> None:
    """Waits until as many answers in a row as there are brokers know the partitions: each may come from another one."""
    deadline, in_a_row = time.monotonic() + _KNOWN_S, 0
    while in_a_row < len(brokers.brokers()):
        present = _partitions(brokers, needed)
        in_a_row = in_a_row + 1 if all(present.get(t, 0) >= n for t, n in needed.items()) else 0
        if time.monotonic() > deadline:
            raise JobError(
                Reason.BROKERS_UNREACHABLE,
                f"the brokers were asked for the partitions of {', '.join(sorted(needed))} and do not list them yet; "
                "this driver tries again",
            )
        time.sleep(_PAUSE_S)
