"""What the audit asks Kafka: positions, ends, and where lanes began. Reads only, and its own code: it must be right when the job is wrong.

Of the job it shares the settings of the connection and the sentences for errors, nothing that commits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import OffsetSpec, TopicDescription

from ackwright_stream.connection import administrator, asking, calling, heard_of_by_all, reach, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason

Lane = tuple[str, int]  # topic, partition
Offsets = Mapping[Lane, int]

_POLL_S = 0.2
_ONE_TRY_S = 5.0  # of a question that is asked again
_ABORT_MARGIN_S = (
    15  # brokers look for expired transactions every 10 s (transaction.abort.timed.out.transaction.cleanup.interval.ms)
)
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
class Beginning:
    """Where a lane began. start: its first offset. sink: if its topic had been made anew, where the partitions of the sink's topic with the
    id sink_id ended: what is in front of that is not of this lane. None: it had not."""

    start: int
    sink_id: str = ""
    sink: Mapping[int, int] | None = None


class KafkaView:
    """Read-only questions about one pipeline. Every call ends within the job's operation timeout, with an answer or a JobError; so does the
    first connection."""

    def __init__(self, job: JobSpec) -> None:
        self._job = job
        self._timeout = job.operation_timeout_ms / 1000
        errors: list[KafkaError] = []
        self._admin = administrator(job.cluster, errors)
        reach(self._admin, errors, job.cluster.bootstrap_servers, min(self._timeout, 15))

    def partitions(self, topics: Iterable[str]) -> list[Lane]:
        """All partitions of the topics. Raises JobError(TOPIC_MISSING)."""
        return [(topic, p.id) for topic, described in self._described(topics).items() for p in described.partitions]

    def earliest(self, lanes: Iterable[Lane]) -> Offsets:
        return self._offsets(lanes, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)

    def written(self, lanes: Iterable[Lane]) -> Offsets:
        """The end of what was written, open transactions included (the high watermark)."""
        return self._offsets(lanes, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)

    def stable(self, lanes: Iterable[Lane]) -> Offsets:
        """How far a read_committed consumer can read now (the last stable offset)."""
        return self._offsets(lanes, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def decided(self, lanes: Iterable[Lane]) -> Offsets:
        """stable(), after waiting until that covers what was written when this was called. A transaction that is open in one lane hides the
        committed records of others behind it, which would look lost. Raises JobError if one stays open for longer than its
        timeout."""
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
                    f"a transaction has been open in {topic}-{partition} since offset {offset} for more than {open_for:.0f} s and "
                    f"hides what follows; find it with kafka-transactions.sh find-hanging --topic {topic} --partition {partition}, "
                    "and abort it",
                )
            time.sleep(_POLL_S)

    def positions(self, lanes: Iterable[Lane]) -> dict[Lane, int | None]:
        """The group's committed offsets, None where there is none. Pending commits are waited for (read_committed asks for stable ones,
        KIP-447); a partition's error is looked at before its offset, because with an error the offset says "none" and means nothing.

        Asked by a consumer that never joins: the admin client's list_consumer_group_offsets ends the process by a segmentation fault when
        the group's coordinator has moved (librdkafka issue 5040)."""
        named = [TopicPartition(t, p) for t, p in sorted(lanes)]
        deadline = time.monotonic() + self._timeout
        reader = Consumer(settings(self._job.cluster, self._job.positions_consumer))
        try:
            while True:
                answer, error = self._committed(reader, named)
                if error is None:
                    return {(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in answer}
                if error.code() not in _TRY_AGAIN or time.monotonic() > deadline:
                    raise translate(error, f"reading the positions of {self._job.group}")
                time.sleep(_POLL_S)
        finally:
            reader.close()

    def _committed(
        self, reader: Consumer, named: list[TopicPartition]
    ) -> tuple[list[TopicPartition], KafkaError | None]:
        try:
            answer = reader.committed(named, timeout=min(_ONE_TRY_S, self._timeout))
        except KafkaException as e:
            return [], e.args[0]
        return answer, next((p.error for p in answer if p.error), None)

    def topic_id(self, topic: str) -> str:
        return str(self._described([topic])[topic].topic_id)

    def _described(self, topics: Iterable[str]) -> dict[str, TopicDescription]:
        named = sorted(set(topics))

        def ask(seconds: float) -> dict[str, TopicDescription]:
            answers = self._admin.describe_topics(TopicCollection(named), request_timeout=seconds)
            return {topic: calling(f"describing topic {topic}", answer.result) for topic, answer in answers.items()}

        return asking(f"describing {', '.join(named)}", self._timeout, ask)

    def beginnings(self) -> dict[Lane, Beginning]:
        """Where each lane began, as the lanes topic records it; nothing for lanes that are not recorded, or without that topic."""
        topics = asking(
            "asking for the topics", self._timeout, lambda seconds: self._admin.list_topics(timeout=seconds)
        ).topics
        if self._job.lanes_topic not in topics:
            return {}
        lanes = self.partitions([self._job.lanes_topic])
        ends = self.decided(lanes)
        consumer = Consumer(settings(self._job.cluster, self._job.lanes_consumer))
        try:
            return self._read_beginnings(consumer, {lane for lane in lanes if ends[lane] > 0})
        finally:
            consumer.close()

    def _read_beginnings(self, consumer: Consumer, left: set[Lane]) -> dict[Lane, Beginning]:
        consumer.assign([TopicPartition(t, p, 0) for t, p in left])
        found: dict[Lane, Beginning] = {}
        deadline = time.monotonic() + self._timeout
        while left:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE,
                    f"{self._job.lanes_topic} could not be read within {self._timeout:.0f} s; try again",
                )
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                self._take(message.key(), message.value(), found)
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard((message.topic(), message.partition()))
            else:
                raise translate(error, "reading the lanes topic")
        return found

    def _take(self, key: bytes | None, value: bytes | None, found: dict[Lane, Beginning]) -> None:
        group, _, lane = (key or b"").decode(errors="replace").rpartition("/")
        topic, _, partition = lane.rpartition("-")
        if group != self._job.group or not partition.isdigit():
            return
        if value is None:
            found.pop((topic, int(partition)), None)
        else:
            record = json.loads(value)
            before = record.get("sinkBefore")
            ends = None if before is None else {int(p): int(end) for p, end in before.get("ends", {}).items()}
            found[topic, int(partition)] = Beginning(int(record["start"]), (before or {}).get("topicId", ""), ends)

    def _offsets(self, lanes: Iterable[Lane], spec: OffsetSpec, isolation: IsolationLevel) -> dict[Lane, int]:
        asked = {TopicPartition(t, p): spec for t, p in lanes}
        if not asked:
            return {}

        def ask(seconds: float) -> dict[Lane, int]:
            answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=seconds)
            with heard_of_by_all():
                return {(p.topic, p.partition): f.result().offset for p, f in answers.items()}

        return asking(f"asking for the offsets of {', '.join(sorted({p.topic for p in asked}))}", self._timeout, ask)
