"""Whether a topic can be written, found out before the first row is handed to a producer."""

from __future__ import annotations

import re
import time

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import TopicMetadata

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

_LEGAL = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")  # org.apache.kafka.common.internals.Topic
_UNUSABLE = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.TOPIC_EXCEPTION}
)
_NEW_S = 3.0  # a broker that was asked may learn so much later than another of a topic that was just made (seen)
_PAUSE_S = 0.1


def require_writable(producer: Producer, topic: str, timeout: float) -> TopicMetadata:
    """The topic. Raises JobError if it is not there, may not be written, or cannot have that name. timeout: seconds for an answer."""
    if not _LEGAL.fullmatch(topic):
        raise JobError(
            Reason.BATCH_FAILED,
            f"{topic!r} cannot be the name of a topic: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'",
        )
    deadline = time.monotonic() + _NEW_S
    while (error := (found := _look(producer, topic, timeout)).error) is not None and error.code() in _UNUSABLE:
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
            raise JobError(
                Reason.BATCH_FAILED,
                f"topic {topic!r} cannot be written ({error.str()}): create it and grant the job's principal Write and Describe on it",
            ) from KafkaException(error)
        time.sleep(_PAUSE_S)
    return found


def one_of_each_leader(topic: TopicMetadata) -> tuple[int, ...]:
    """Partitions: one of each broker that leads any, as far as leaders are known."""
    return tuple({p.leader: p.id for p in topic.partitions.values() if p.leader >= 0}.values())


def _look(producer: Producer, topic: str, timeout: float) -> TopicMetadata:
    try:
        return producer.list_topics(topic, timeout).topics[topic]
    except KafkaException as e:
        raise JobError(
            Reason.BATCH_FAILED,
            f"no broker told whether topic {topic!r} exists ({e.args[0].str()}): see that the brokers can be reached",
        ) from e
