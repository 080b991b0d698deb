"""What the audit reads from Kafka: positions, ends, where lanes began, and how many records the source has.

It shares the connection's settings and error messages with the job, and no other code, because it must be right when
the job is wrong.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType, TopicDescription

from ackwright_stream.connection import (
    administrator,
    calling,
    metadata_may_lag,
    repeated,
    require_reachable,
    settings,
    translate,
)
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason

Lane = tuple[str, int]  # topic, partition
Offsets = Mapping[Lane, int]

_POLL_S = 0.2
_COUNTED_AT_ONCE = 10_000  # records
_ONE_TRY_S = 5.0  # of a request that is repeated
# Brokers check for expired transactions every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms).
_ABORT_MARGIN_S = 15
_TRY_AGAIN = frozenset(
    {
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)


@dataclass(frozen=True)
class LaneStart:
    """Where a lane began."""

    start: int  # its first offset
    sink_id: str = ""  # topic id of the sink
    # Where the sink's partitions ended when the lane began; records in front of that are not from this lane. None: the
    # source topic was not a recreated one.
    sink: Mapping[int, int] | None = None


class KafkaView:
    """Read-only access to Kafka for one pipeline.

    Every call ends within the job's operation timeout, with an answer or a JobError.
    """

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._timeout = job.operation_timeout_ms / 1000
        errors: list[KafkaError] = []
        self._admin = administrator(job.cluster, errors)
        require_reachable(self._admin, errors, job.cluster.bootstrap_servers, min(self._timeout, 15))

    def partitions(self, topics: Iterable[str]) -> list[Lane]:
        """All partitions of the topics. Raises JobError(TOPIC_MISSING)."""
        return [(topic, p.id) for topic, described in self._described(topics).items() for p in described.partitions]

    def earliest(self, lanes: Iterable[Lane]) -> Offsets:
        """The first offsets that the log still has."""
        return self._offsets(lanes, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def written(self, lanes: Iterable[Lane]) -> Offsets:
        """The ends of the log, open transactions included (the high watermark)."""
        return self._offsets(lanes, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def stable(self, lanes: Iterable[Lane]) -> Offsets:
        """The offsets up to which a read_committed consumer can read now (the last stable offset)."""
        return self._offsets(lanes, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def decided(self, lanes: Iterable[Lane]) -> Offsets:
        """stable(), once that has reached the ends of the log at the time of the call.

        An open transaction of one lane hides the committed records of others behind it, which would look lost. Raises
        JobError if one stays open for longer than its timeout.
        """
        lanes = list(lanes)
        written = self.written(lanes)
        open_for = self._job.transaction_timeout_ms / 1000 + _ABORT_MARGIN_S
        deadline = time.monotonic() + max(open_for, self._timeout)
        while True:
            stable = self.stable(lanes)
            behind = sorted(lane for lane in lanes if stable[lane] < written[lane])
            if not behind:
                return stable
            if time.monotonic() > deadline:
                (topic, partition), offset = behind[0], stable[behind[0]]
                raise JobError(
                    Reason.UNEXPECTED,
                    f"a transaction has been open in {topic}-{partition} since offset {offset} for more than "
                    f"{open_for:.0f} s and "
                    f"hides what follows; find it with kafka-transactions.sh find-hanging --topic {topic} "
                    f"--partition {partition}, "
                    "and abort it",
                )
            time.sleep(_POLL_S)

    def cluster_id(self) -> str:
        """The id of the cluster."""

        def read(seconds: float) -> str:
            answer = self._admin.describe_cluster(request_timeout=seconds)
            return str(calling("reading the cluster's id", partial(answer.result, seconds + 1)).cluster_id)

        return repeated("reading the cluster's id", self._timeout, read)

    def positions(self, lanes: Iterable[Lane], prefix: str = "") -> dict[Lane, int | None]:
        """The group's committed offsets, None where there is none.

        prefix: in front of the topics' names, where the offsets are those of other topics.

        It waits for pending commits (read_committed asks for stable offsets, KIP-447). A partition's error is checked
        before its offset, which with an error says "none" and means nothing. The consumer never joins the group. The
        admin client's list_consumer_group_offsets would end the process with a segmentation fault when the group's
        coordinator has moved (librdkafka issue 5040).
        """
        partitions = [TopicPartition(prefix + t, p) for t, p in sorted(lanes)]
        deadline = time.monotonic() + self._timeout
        reader = Consumer(settings(self._job.cluster, self._job.positions_consumer))
        try:
            while True:
                answer, error = self._committed(reader, partitions)
                if error is None:
                    offsets = ((p.topic.removeprefix(prefix), p.partition, p.offset) for p in answer)
                    return {(t, p): offset if offset >= 0 else None for t, p, offset in offsets}
                if error.code() not in _TRY_AGAIN or time.monotonic() > deadline:
                    raise translate(error, f"reading the positions of {self._job.group}")
                time.sleep(_POLL_S)
        finally:
            reader.close()

    def _committed(
        self, reader: Consumer, partitions: list[TopicPartition]
    ) -> tuple[list[TopicPartition], KafkaError | None]:
        try:
            answer = reader.committed(partitions, timeout=min(_ONE_TRY_S, self._timeout))
        except KafkaException as e:
            return [], e.args[0]
        return answer, next((p.error for p in answer if p.error), None)

    def topic_id(self, topic: str) -> str:
        """The id of a topic. Raises JobError(TOPIC_MISSING)."""
        return str(self._described([topic])[topic].topic_id)

    def existing(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics that exist."""
        return set(topics) & set(self._topics())

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Those of the topics from which compaction may remove records. Raises JobError(AUTHORIZATION_FAILED)."""
        resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        if not resources:
            return set()

        def read(seconds: float) -> set[str]:
            answers = self._admin.describe_configs(resources, request_timeout=seconds)
            policies = {
                r.name: calling(f"reading the settings of topic {r.name}", partial(answer.result, seconds + 1))[
                    "cleanup.policy"
                ].value
                for r, answer in answers.items()
            }
            return {topic for topic, policy in policies.items() if "compact" in policy.split(",")}

        return repeated(f"reading the settings of {', '.join(r.name for r in resources)}", self._timeout, read)

    def count(self, start: Offsets, until: Offsets) -> dict[Lane, int]:
        """The number of records in [start, until) of each lane, as the job's isolation level shows them.

        Counted by this client, so that it is known whether Spark's has read all of them. Raises JobError if nothing
        arrives within the operation timeout.
        """
        counts = dict.fromkeys(until, 0)
        remaining = {lane for lane in until if start[lane] < until[lane]}
        isolation = self._job.consumer.get("isolation.level", "read_committed")
        reader = Consumer(settings(self._job.cluster, self._job.topic_consumer, {"isolation.level": isolation}))
        reader.assign([TopicPartition(t, p, start[t, p]) for t, p in remaining])
        deadline = time.monotonic() + self._timeout
        try:
            while remaining:
                messages = reader.consume(_COUNTED_AT_ONCE, timeout=_POLL_S)
                if messages:
                    deadline = time.monotonic() + self._timeout
                elif time.monotonic() > deadline:
                    lanes = ", ".join(f"{t}-{p}" for t, p in sorted(remaining))
                    raise JobError(
                        Reason.BROKERS_UNREACHABLE,
                        f"no record of {lanes} arrived within {self._timeout:.0f} s; check that the brokers are up",
                    )
                for message in messages:
                    lane, error = (message.topic(), message.partition()), message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise translate(error, "counting the records of the source")
                    if lane in remaining and (error is not None or message.offset() >= until[lane] - 1):
                        remaining.discard(lane)
                        reader.pause([TopicPartition(*lane)])
                    if error is None and message.offset() < until[lane]:
                        counts[lane] += 1
        finally:
            reader.close()
        return counts

    def _topics(self) -> Iterable[str]:
        topics = repeated(
            "reading the topics", self._timeout, lambda seconds: self._admin.list_topics(timeout=seconds)
        ).topics
        return tuple(topics)

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        names = sorted(set(topics))

        def read(seconds: float) -> dict[str, TopicDescription]:
            answers = self._admin.describe_topics(TopicCollection(names), request_timeout=seconds)
            return {
                topic: calling(f"describing topic {topic}", partial(answer.result, seconds + 1))
                for topic, answer in answers.items()
            }

        return repeated(f"describing {', '.join(names)}", self._timeout, read)

    def lane_starts(self) -> dict[Lane, LaneStart]:
        """Where each lane began, for the lanes that the lanes topic records."""
        starts: dict[Lane, LaneStart] = {}
        self._read(
            self._job.sink_of(KafkaSink).positions.lanes_topic, lambda key, value: self._apply(key, value, starts)
        )
        return starts

    def decisions(self) -> list[str]:
        """The decisions of the pipeline that the topic of decisions still has, oldest first."""
        topic, group = self._job.sink_of(KafkaSink).positions.decisions_topic, self._job.group.encode()
        texts: list[str] = []

        def apply(key: bytes | None, value: bytes | None) -> None:
            if key == group:
                texts.append((value or b"").decode(errors="replace"))

        if topic is not None:
            self._read(topic, apply)
        return texts

    def _read(self, topic: str, apply: Callable[[bytes | None, bytes | None], None]) -> None:
        """Applies the key and the value of each committed record of a topic; of none if it does not exist."""
        if not self.existing([topic]):
            return
        lanes = self.partitions([topic])
        ends = self.decided(lanes)
        consumer = Consumer(settings(self._job.cluster, self._job.topic_consumer))
        try:
            self._read_to_end(consumer, {lane for lane in lanes if ends[lane] > 0}, apply)
        finally:
            consumer.close()

    def _read_to_end(
        self, consumer: Consumer, remaining: set[Lane], apply: Callable[[bytes | None, bytes | None], None]
    ) -> None:
        """Reads the remaining partitions of a topic."""
        consumer.assign([TopicPartition(t, p, 0) for t, p in remaining])
        topics = ", ".join(sorted({topic for topic, _ in remaining}))
        deadline = time.monotonic() + self._timeout
        while remaining:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE, f"{topics} could not be read within {self._timeout:.0f} s; try again"
                )
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                apply(message.key(), message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                remaining.discard((message.topic(), message.partition()))
            else:
                raise translate(error, f"reading {topics}")

    def _apply(self, key: bytes | None, value: bytes | None, starts: dict[Lane, LaneStart]) -> None:
        """Applies one record of the lanes topic, which other pipelines share."""
        group, _, lane = (key or b"").decode(errors="replace").rpartition("/")
        topic, _, partition = lane.rpartition("-")
        if group != self._job.group or not partition.isdigit():
            return
        if value is None:
            starts.pop((topic, int(partition)), None)
        else:
            record = json.loads(value)
            before = record.get("sinkBefore")
            ends = None if before is None else {int(p): int(end) for p, end in before.get("ends", {}).items()}
            starts[topic, int(partition)] = LaneStart(int(record["start"]), (before or {}).get("topicId", ""), ends)

    def _offsets(self, lanes: Iterable[Lane], spec: OffsetSpec, isolation: IsolationLevel) -> dict[Lane, int]:
        specs = {TopicPartition(t, p): spec for t, p in lanes}
        if not specs:
            return {}

        def read(seconds: float) -> dict[Lane, int]:
            answers = self._admin.list_offsets(specs, isolation_level=isolation, request_timeout=seconds)
            with metadata_may_lag():
                return {(p.topic, p.partition): f.result(seconds + 1).offset for p, f in answers.items()}

        return repeated(f"reading the offsets of {', '.join(sorted({p.topic for p in specs}))}", self._timeout, read)
