"""Positions as the committed offsets of a consumer group. Reads only.

The topic's id and the driver's number are in the offset's metadata.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import translate
from ackwright_stream.positions import Lane, Position

_METADATA = re.compile(r"^ackwright/1 topic=(?P<topic>\S*) driver=(?P<driver>\d+)$")
_RETRIABLE = frozenset(
    {
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._WAIT_COORD,
    }
)
_PAUSE_S = 0.02


def to_offset(lane: Lane, position: Position) -> TopicPartition:
    """The position as an offset to commit."""
    metadata = f"ackwright/1 topic={position.topic_id} driver={position.driver}"
    return TopicPartition(lane.topic, lane.partition, position.offset, metadata)


def to_position(committed: TopicPartition) -> Position | None:
    """The broker's answer as a position; None if the lane has none."""
    if committed.offset < 0:
        return None
    metadata = _METADATA.match(committed.metadata or "")
    if not metadata:
        return Position(committed.offset)
    return Position(committed.offset, metadata["topic"], int(metadata["driver"]))


def read(consumer: Consumer, lanes: Iterable[Lane], timeout_s: float) -> dict[Lane, Position | None]:
    """The positions of the lanes, None where there is none. Retries while the coordinator moves or loads.

    A lane is never reported missing because of an error: errors are checked first (docs/protocol.md#rule-9). Raises
    JobError(BROKERS_UNREACHABLE) after timeout_s seconds without an answer.
    """
    partitions = [TopicPartition(lane.topic, lane.partition) for lane in sorted(lanes)]
    deadline = time.monotonic() + timeout_s
    while True:
        error: KafkaError | None
        try:
            answer = consumer.committed(partitions, timeout=max(0.1, deadline - time.monotonic()))
            error = next((x.error for x in answer if x.error), None)
            if error is None:
                return {Lane(x.topic, x.partition): to_position(x) for x in answer}
        except KafkaException as e:
            error = e.args[0]
        if error.code() not in _RETRIABLE or time.monotonic() >= deadline:
            some = ", ".join(f"{x.topic}-{x.partition}" for x in partitions[:3])
            raise translate(error, f"reading the positions of {some}")
        time.sleep(_PAUSE_S)
