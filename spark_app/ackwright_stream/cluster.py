"""Brokers over one admin connection; the source's: which lanes there are, where they begin and end. Reads only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import OFFSET_END, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.connection import (
    administrator,
    calling,
    metadata_may_lag,
    positions_consumer,
    repeated,
    require_reachable,
    translate,
)
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Cluster as Connection
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.kafka_errors import CREATE_TOPIC, MISSING
from ackwright_stream.positions import Lane

T = TypeVar("T")
_CONNECT_S = 15.0  # at most, for the first answer
_ENDS_S = 5.0
_ABSENT = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)  # a topic that the list of all topics does not contain


@dataclass(frozen=True)
class Topology:
    """The source's topics and partitions at one moment."""

    topic_ids: Mapping[str, str]  # by topic
    earliest: Mapping[Lane, int]  # first offset that is left
    latest: Mapping[Lane, int]  # end, as a read_committed reader sees it

    @property
    def lanes(self) -> tuple[Lane, ...]:
        return tuple(sorted(self.earliest))


class Brokers:
    """The brokers of one cluster, over one admin connection."""

    def __init__(self, connection: Connection, timeout: float) -> None:
        self.timeout = timeout  # seconds, of one query
        self._connection = connection
        self._errors: list[KafkaError] = []  # errors that librdkafka reports apart from any call
        self.admin = self._connected()

    def query(self, what: str, request: Callable[[AdminClient, float], T]) -> T:
        """The result of a request that changes nothing, repeated until there is one.

        `request` takes the seconds for one try. A try without an answer ends the connection: librdkafka's admin
        client sends its requests to the broker that it took for the controller, for minutes after that broker has
        begun to hang (observed). Raises JobError."""

        def once(timeout: float) -> T:
            try:
                return request(self.admin, timeout)
            except (KafkaException, TimeoutError):
                self.admin = self._connected()
                raise

        return repeated(what, self.timeout, once)

    def require(self, topics: Iterable[str]) -> None:
        """Raises JobError if the brokers cannot be reached, or if one of the topics is missing or has another error."""
        servers = self._connection.bootstrap_servers
        metadata = require_reachable(self.admin, self._errors, servers, min(self.timeout, _CONNECT_S))
        errors = {t: metadata.topics[t].error if t in metadata.topics else _ABSENT for t in topics}
        missing = [t for t, error in errors.items() if error is not None and error.code() in MISSING]
        if missing:
            raise JobError(
                Reason.TOPIC_MISSING,
                f"no such topic at {servers}: {', '.join(missing)}; {CREATE_TOPIC}",
            )
        for topic, error in errors.items():
            if error is not None:  # such as LEADER_NOT_AVAILABLE while brokers start: the topic is there
                raise translate(error, f"reading the metadata of {topic}")

    def id(self) -> str:
        """The id of the cluster, which its brokers keep as long as they keep their data."""
        return str(
            self.query(
                "reading the cluster's id",
                lambda admin, timeout: admin.describe_cluster(request_timeout=timeout).result(timeout).cluster_id,
            )
        )

    def brokers(self) -> list[int]:
        """The brokers' ids."""
        return sorted(
            self.query("listing the brokers", lambda admin, timeout: admin.list_topics(timeout=timeout)).brokers
        )

    def _connected(self) -> AdminClient:
        return administrator(self._connection, self._errors)


class Cluster(Brokers):
    """The source's brokers."""

    def __init__(self, job: JobSpec) -> None:
        super().__init__(job.cluster, job.operation_timeout_ms / 1000)
        self._job = job
        self._watcher = positions_consumer(job)

    def check(self, topics: Iterable[str] = ()) -> None:
        """Raises JobError if the brokers cannot be reached, or if a source topic or one of `topics` is missing."""
        self.require([*self._job.source.topics, *topics])

    def topology(self) -> Topology:
        """The source topics' ids, partitions and offset bounds."""
        names = list(self._job.source.topics)

        def describe(admin: AdminClient, timeout: float) -> dict[str, Any]:
            answers = admin.describe_topics(TopicCollection(names), request_timeout=timeout)
            return {topic: answer.result(timeout) for topic, answer in answers.items()}

        topics = self.query(f"describing {', '.join(names)}", describe)
        lanes = [Lane(name, p.id) for name, topic in topics.items() for p in topic.partitions]
        return Topology(
            topic_ids={name: str(topic.topic_id) for name, topic in topics.items()},
            earliest=self._offsets(lanes, OffsetSpec.earliest()),
            latest=self._offsets(lanes, OffsetSpec.latest()),
        )

    def ends(self, lanes: Iterable[Lane]) -> Mapping[Lane, int]:
        """The end of each lane, as a read_committed reader sees it.

        One request to each leader. This is read all the time, and by a consumer: librdkafka's admin client can end the
        process when a broker goes away during a request (an assertion in rd_kafka_enq_once_del_source_return,
        observed).
        """
        # In place of a time: the end, to which the consumer's isolation level applies.
        partitions = [TopicPartition(lane.topic, lane.partition, OFFSET_END) for lane in lanes]
        if not partitions:
            return {}
        what = f"reading the ends of {', '.join(self._job.source.topics)}"
        answers = calling(what, lambda: self._watcher.offsets_for_times(partitions, timeout=_ENDS_S))
        for answer in answers:
            if answer.error is not None:
                raise translate(answer.error, what)
        return {Lane(x.topic, x.partition): x.offset for x in answers}

    def _offsets(self, lanes: Iterable[Lane], spec: OffsetSpec) -> Mapping[Lane, int]:
        partitions = {TopicPartition(lane.topic, lane.partition): spec for lane in lanes}
        if not partitions:
            return {}
        return self.query(
            "reading the topics' offsets",
            lambda admin, timeout: list_offsets(admin, partitions, IsolationLevel.READ_COMMITTED, timeout),
        )


def list_offsets(
    admin: AdminClient, partitions: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel, timeout: float
) -> dict[Lane, int]:
    """An offset of each partition, the one that its OffsetSpec names. timeout: seconds."""
    answers = admin.list_offsets(dict(partitions), isolation_level=isolation, request_timeout=timeout)
    with metadata_may_lag():
        return {Lane(p.topic, p.partition): answer.result(timeout).offset for p, answer in answers.items()}
