"""The lanes topic: which lanes of a pipeline were ever initialised.

Reads only; records are written in the lane's own transaction.
"""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import list_offsets
from ackwright_stream.connection import asking, calling, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane

_POLL_S = 0.5


def recorded_lanes(job: JobSpec) -> dict[Lane, str]:
    """The lanes of this pipeline that were ever initialised, each with the id that its topic had then. Raises JobError.

    Reads as a read_committed reader, but up to the end that a read_uncommitted one sees: another pipeline's open
    transaction hides what follows it, and a lane whose record is overlooked would start again.

    The consumer looks up a group's coordinator, although it joins no group and commits nothing. It uses the pipeline's
    own group, which the job may read anyway: a group of another name would be one more permission, whose lack shows
    only if the refusal comes before the end.
    """
    consumer = Consumer(settings(job.cluster, job.lanes_consumer))
    timeout = job.operation_timeout_ms / 1000
    try:
        ends = _ends_of(job, job.lanes_topic, consumer, timeout)
        reading = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(job.lanes_topic, partition, 0) for partition in reading])
        records: dict[Lane, str] = {}
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE,
                    f"{job.lanes_topic} could not be read to its end within {timeout:.0f} s; an open transaction of "
                    "another pipeline may hold it back: try again",
                )
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if not message.error():
                _apply(records, job.group, message)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), "reading the lanes topic")
            elif message.offset() >= ends[message.partition()]:
                reading.discard(message.partition())
        return records
    finally:
        consumer.close()


def _ends_of(job: JobSpec, topic: str, consumer: Consumer, timeout: float) -> dict[int, int]:
    """The end of each partition, open transactions included."""
    metadata = calling(f"describing {topic}", lambda: consumer.list_topics(topic, timeout))
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in metadata.topics[topic].partitions}

    def ask(timeout_once: float) -> dict[Lane, int]:
        # Referenced until the answers are here: a collected client never answers.
        admin = AdminClient(settings(job.cluster))
        return list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED, timeout_once)

    ends = asking(f"asking for the end of {topic}", timeout, ask)
    return {lane.partition: end for lane, end in ends.items()}


def _apply(records: dict[Lane, str], group: str, message: Message) -> None:
    """Applies one record of the compacted topic.

    Its key is "<group>/<topic>-<partition>", and neither topic nor partition has a slash.
    """
    of_group, _, name = message.key().decode().rpartition("/")
    topic, _, partition = name.rpartition("-")
    if of_group != group or not partition.isdigit():
        return
    if message.value() is None:
        records.pop(Lane(topic, int(partition)), None)
    else:
        records[Lane(topic, int(partition))] = str(json.loads(message.value())["topicId"])
