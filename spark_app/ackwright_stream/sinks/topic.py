"""Checks whether a topic can be written, before the first row is passed to a producer."""

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
_NEW_S = 3.0  # one broker may learn of a new topic so much later than another (observed)
_PAUSE_S = 0.1


def require_writable(producer: Producer, topic: str, timeout: float) -> TopicMetadata:
    """The topic's metadata. Raises JobError if it does not exist, may not be written, or has an illegal name.

    timeout: seconds for an answer.
    """
    if not _LEGAL.fullmatch(topic):
        raise JobError(
            Reason.BATCH_FAILED,
            f"{topic!r} cannot be the name of a topic: use 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_', '-'",
        )
    deadline = time.monotonic() + _NEW_S
    while (error := (metadata := _describe(producer, topic, timeout)).error) is not None and error.code() in _UNUSABLE:
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART or time.monotonic() > deadline:
            raise JobError(
                Reason.BATCH_FAILED,
                f"topic {topic!r} cannot be written ({error.str()}): create it, and grant the job's principal Write "
                "and Describe on it",
            ) from KafkaException(error)
        time.sleep(_PAUSE_S)
    return metadata


def one_of_each_leader(topic: TopicMetadata) -> tuple[int, ...]:
    """One partition of each broker that leads any, as far as leaders are known."""
    return tuple({p.leader: p.id for p in topic.partitions.values() if p.leader >= 0}.values())


def _describe(producer: Producer, topic: str, timeout: float) -> TopicMetadata:
    try:
        return producer.list_topics(topic, timeout).topics[topic]
    except KafkaException as e:
        raise JobError(
            Reason.BATCH_FAILED,
            f"no broker answered whether topic {topic!r} exists ({e.args[0].str()}): check that the brokers can be "
            "reached",
        ) from e
