"""The lanes topic: which lanes of a pipeline were ever initialised, and where they were at its last orderly stop.

The key of a lane's record is "<group>/<topic>-<partition>", that of the final positions "<group>/". Two more are no
lanes, because no topic has an @ in its name: the fingerprint of the positions that were accepted last has
"<group>/@accepted", the last driver's member id, address and number "<group>/@driver". Reads only; all are written in
the driver's transactions, together with the positions (driver_transactions.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, Message, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import list_offsets
from ackwright_stream.connection import calling, repeated, settings, translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.base import Records

_POLL_S = 0.5
_DRIVER = "@driver"
_ACCEPTED = "@accepted"


def records(job: JobSpec) -> Records:
    """The records of this pipeline. Raises JobError.

    Reads as a read_committed reader, but up to the end that a read_uncommitted one sees: another pipeline's open
    transaction hides what follows it, and a lane whose record is overlooked would start again. It waits for the end of
    such a transaction only if one of the hidden records is this pipeline's.

    The consumer looks up a group's coordinator, although it joins no group and commits nothing. It uses the pipeline's
    own group, which the job may read anyway: a group of another name would be one more permission, whose lack shows
    only if the refusal comes before the end.
    """
    sink = job.sink_of(KafkaSink)
    consumer = Consumer(settings(sink.brokers(job.cluster), job.topic_consumer))
    lanes_topic = sink.positions.lanes_topic
    timeout = job.operation_timeout_ms / 1000
    try:
        ends = _ends_of(job, lanes_topic, consumer, timeout)
        reading = {partition for partition, end in ends.items() if end > 0}
        consumer.assign([TopicPartition(lanes_topic, partition, 0) for partition in reading])
        read = Records()
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise JobError(
                    Reason.BROKERS_UNREACHABLE,
                    f"{lanes_topic} could not be read to its end within {timeout:.0f} s; an open transaction of "
                    "another pipeline may hide this pipeline's records: try again",
                )
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if not message.error():
                _apply(read, job.group, message)
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), "reading the lanes topic")
            elif not _hides(job, message.partition(), message.offset(), ends[message.partition()], deadline):
                reading.discard(message.partition())
        return read
    finally:
        consumer.close()


def _hides(job: JobSpec, partition: int, start: int, end: int, deadline: float) -> bool:
    """Whether records of this pipeline, committed or not, are between two offsets of the lanes topic.

    Also if they cannot be read by the deadline (time.monotonic())."""
    if start >= end:
        return False
    sink = job.sink_of(KafkaSink)
    consumer = Consumer(settings(sink.brokers(job.cluster), job.topic_consumer, sink.positions.uncommitted_reads))
    try:
        consumer.assign([TopicPartition(sink.positions.lanes_topic, partition, start)])
        while time.monotonic() < deadline:
            message = consumer.poll(_POLL_S)
            if message is None:
                continue
            if not message.error():
                if _group_and_name(message)[0] == job.group:
                    return True
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise translate(message.error(), "reading the lanes topic")
            elif message.offset() >= end:
                return False
        return True
    finally:
        consumer.close()


def _ends_of(job: JobSpec, topic: str, consumer: Consumer, timeout: float) -> dict[int, int]:
    """The end of each partition, open transactions included."""
    metadata = calling(f"describing {topic}", lambda: consumer.list_topics(topic, timeout))
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in metadata.topics[topic].partitions}

    def read(timeout_once: float) -> dict[Lane, int]:
        # Referenced until the answers are here: a collected client never answers.
        admin = AdminClient(settings(job.sink_of(KafkaSink).brokers(job.cluster)))
        return list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED, timeout_once)

    ends = repeated(f"reading the end of {topic}", timeout, read)
    return {lane.partition: end for lane, end in ends.items()}


def _group_and_name(message: Message) -> tuple[str, str]:
    """The two parts of a record's key. Neither a topic nor a partition has a slash in it."""
    group, _, name = message.key().decode().rpartition("/")
    return group, name


def _apply(read: Records, group: str, message: Message) -> None:
    """Applies one record of the compacted topic."""
    of_group, name = _group_and_name(message)
    if of_group != group:
        return
    value = None if message.value() is None else json.loads(message.value())
    if not name:
        read.final.clear()
        read.final.update(final_positions(value) if value else {})
        return
    if name == _ACCEPTED:
        read.accepted = str(value or "")
        return
    if name == _DRIVER:
        read.addresses.clear()
        if value:
            read.driver = int(value.get("number", 0))  # earlier releases recorded none
            read.source = str(value.get("source", ""))
            if value["address"]:
                read.addresses[str(value["member"])] = str(value["address"])
        return
    lane = to_lane(name)
    if lane is None:
        return
    if value is None:
        read.lanes.pop(lane, None)
    else:
        read.lanes[lane] = str(value["topicId"])


def final_positions(value: Mapping[str, Any]) -> dict[Lane, Position]:
    """From the value of the record that final_value() made."""
    return {
        lane: Position(int(offset), str(topic_id), int(value["driver"]))
        for name, (offset, topic_id) in value["final"].items()
        if (lane := to_lane(name))
    }


def final_value(positions: Mapping[Lane, Position]) -> dict[str, Any]:
    """The value of the record of final positions, which are of one driver."""
    final = {str(lane): [position.offset, position.topic_id] for lane, position in positions.items()}
    return {"driver": max((position.driver for position in positions.values()), default=0), "final": final}


def to_lane(name: str) -> Lane | None:
    """The lane with this text; None if it is not the text of a lane."""
    topic, _, partition = name.rpartition("-")
    return Lane(topic, int(partition)) if partition.isdigit() else None


def record_key(group: str, lane: Lane) -> bytes:
    """The key of a lane's record."""
    return f"{group}/{lane}".encode()


def accepted_key(group: str) -> bytes:
    """The key of the record of the fingerprint that was accepted last."""
    return f"{group}/{_ACCEPTED}".encode()


def final_key(group: str) -> bytes:
    """The key of the record of final positions."""
    return f"{group}/".encode()


def driver_key(group: str) -> bytes:
    """The key of the record of the driver that has taken the pipeline."""
    return f"{group}/{_DRIVER}".encode()


def driver_value(member: str, address: str | None, number: int, source: str = "") -> dict[str, Any]:
    """The value of the record of the driver. member: the id under which it has joined. address: as announced.

    source: the id of the source's cluster, if the sink has its own.
    """
    of_source = {"source": source} if source else {}
    # Earlier releases require an address.
    return {"member": member, "address": address or "", "number": number, **of_source}
