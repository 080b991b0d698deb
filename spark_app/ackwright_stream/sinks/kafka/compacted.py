"""Reads a compacted topic that all pipelines share, up to its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import list_offsets
from ackwright_stream.connection import calling, repeated, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.kafka_errors import MISSING
from ackwright_stream.positions import Lane

_POLL_S = 0.5
# A consumer reports the end of a partition when a fetch there is answered: by default after 500 ms, which a driver's
# start would wait for.
_FETCH = {"fetch.wait.max.ms": "10"}


def read_to_end(job: JobSpec, topic: str, apply: Callable[[Message], None], is_own: Callable[[Message], bool]) -> None:
    """Applies every committed record of the topic, in the order of each partition. Raises JobError.

    is_own: whether a record is of this pipeline.

    Reads as a read_committed reader, but up to the end that a read_uncommitted one sees: another pipeline's open
    transaction hides what follows it. It waits for the end of such a transaction only if one of the hidden records is
    this pipeline's.

    The consumer looks up a group's coordinator, although it joins no group and commits nothing. It uses the pipeline's
    own group, which the job may read anyway: a group of another name would be one more permission, whose lack shows
    only if the refusal comes before the end.
    """
    sink = job.sink_of(KafkaSink)
    consumer = Consumer(settings(sink.brokers(job.cluster), job.topic_consumer, _FETCH))
    timeout = job.operation_timeout_ms / 1000
    try:
        ends = _ends_of(job, topic, consumer, timeout)
        reading = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in reading])
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE,
                    f"{topic} could not be read to its end within {timeout:.0f} s; an open transaction of "
                    "another pipeline may hide this pipeline's records: try again",
                )
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if not message.error():
                apply(message)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), f"reading {topic}")
            else:
                behind = TopicPartition(topic, message.partition(), message.offset())
                if not _hides(job, behind, ends[behind.partition], is_own, deadline):
                    reading.discard(behind.partition)
    finally:
        consumer.close()


def _hides(job: JobSpec, start: TopicPartition, end: int, is_own: Callable[[Message], bool], deadline: float) -> bool:
    """Whether records of this pipeline, committed or not, are between two offsets of the topic.

    Also if they cannot be read by the deadline (time.monotonic())."""
    if start.offset >= end:
        return False
    sink = job.sink_of(KafkaSink)
    uncommitted = sink.positions.uncommitted_reads
    consumer = Consumer(settings(sink.brokers(job.cluster), job.topic_consumer, uncommitted, _FETCH))
    try:
        consumer.assign([start])
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if not message.error():
                if is_own(message):
                    return True
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), f"reading {start.topic}")
            elif message.offset() >= end:
                return False
        return True
    finally:
        consumer.close()


def _ends_of(job: JobSpec, topic: str, consumer: Consumer, timeout: float) -> dict[int, int]:
    """The end of each partition, open transactions included."""
    metadata = calling(f"describing {topic}", lambda: consumer.list_topics(topic, timeout))
    described = metadata.topics[topic]
    # It then has no partitions, and would look as if it had no records: a topic without permission is not a lost one.
    if described.error is not None and described.error.code() not in MISSING:
        raise translate(described.error, f"describing {topic}")
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in described.partitions}

    def read(timeout_once: float) -> dict[Lane, int]:
        # Referenced until the answers are here: a collected client never answers.
        admin = AdminClient(settings(job.sink_of(KafkaSink).brokers(job.cluster)))
        return list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED, timeout_once)

    ends = repeated(f"reading the end of {topic}", timeout, read)
    return {lane.partition: end for lane, end in ends.items()}
