"""Positions as the committed offsets of a consumer group. Reads only.

The offset's metadata names the topic's id, how many slots the driver's tasks use, the id of the lanes topic that has
the lane's record, the identity of the pipeline, and the driver's number:

    ackwright/1 topic=<topic id>;slots=<number>;lanes=<topic id>;pipeline=<identity> driver=<number>

A stateful pipeline adds ";batch=<number>", that of the last decided batch, behind the identity.

Earlier releases wrote the topic's id and the driver's number alone. They read everything up to the space as the topic's
id, so one of them that is started again finds positions of another topic and halts, instead of working beside a driver
that it cannot fence. The id of the lanes topic is empty while a driver takes its lanes from an earlier release.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import translate
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka.markers import Markers

_METADATA = re.compile(
    r"^ackwright/1 topic=(?P<topic>[^\s;]*)"
    r"(;slots=(?P<slots>\d+);lanes=(?P<lanes>[^\s;]*);pipeline=(?P<pipeline>[^\s;]*)(;batch=(?P<batch>\d+))?)?"
    r" driver=(?P<driver>\d+)$"
)
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
_ONE_CLUSTER = Markers()


def to_offset(job: JobSpec, lane: Lane, position: Position, lanes_topic_id: str) -> TopicPartition:
    """The position as an offset of the lane's partition. Markers.committed() has it as it is committed."""
    batch = "" if position.batch is None else f";batch={position.batch}"
    metadata = (
        f"ackwright/1 topic={position.topic_id};slots={job.slots};lanes={lanes_topic_id};pipeline={position.pipeline}"
        f"{batch} driver={position.driver}"
    )
    return TopicPartition(lane.topic, lane.partition, position.offset, metadata)


def slots_of(committed: TopicPartition) -> int | None:
    """How many slots the driver that committed this offset uses; None if a release without slots committed it."""
    metadata = _METADATA.match(committed.metadata or "")
    return int(metadata["slots"]) if metadata and metadata["slots"] else None


def to_position(committed: TopicPartition) -> Position | None:
    """The broker's answer as a position; None if the lane has none."""
    if committed.offset < 0:
        return None
    metadata = _METADATA.match(committed.metadata or "")
    if not metadata:
        return Position(committed.offset)
    batch = None if metadata["batch"] is None else int(metadata["batch"])
    return Position(committed.offset, metadata["topic"], int(metadata["driver"]), metadata["pipeline"] or "", batch)


def is_own(committed: TopicPartition) -> bool:
    """Whether a driver, also one of an earlier release, has committed this offset."""
    position = to_position(committed)
    return position is not None and not position.is_foreign


def recorded_in(committed: TopicPartition) -> str:
    """The id of the lanes topic that has the lane's record; empty if that is not known."""
    metadata = _METADATA.match(committed.metadata or "")
    return metadata["lanes"] or "" if metadata else ""


def read(consumer: Consumer, lanes: Iterable[Lane], timeout_s: float) -> dict[Lane, Position | None]:
    """The positions of the lanes, None where there is none, as read_committed() has them."""
    return {Lane(x.topic, x.partition): to_position(x) for x in read_committed(consumer, lanes, timeout_s)}


def read_committed(
    consumer: Consumer, lanes: Iterable[Lane], timeout_s: float, markers: Markers = _ONE_CLUSTER
) -> list[TopicPartition]:
    """The committed offsets of the lanes, negative where there is none. Retries while the coordinator moves or loads.

    A lane is never reported missing because of an error: errors are checked first (docs/protocol.md#rule-9). Raises
    JobError(BROKERS_UNREACHABLE) after timeout_s seconds without an answer.
    """
    partitions = markers.committed(TopicPartition(lane.topic, lane.partition) for lane in sorted(lanes))
    if not partitions:
        return []
    deadline = time.monotonic() + timeout_s
    while True:
        error: KafkaError | None
        try:
            answer = consumer.committed(partitions, timeout=max(0.1, deadline - time.monotonic()))
            error = next((x.error for x in answer if x.error), None)
            if error is None:
                return markers.of_source(answer)
        except KafkaException as e:
            error = e.args[0]
        if error.code() not in _RETRIABLE or time.monotonic() >= deadline:
            some = ", ".join(f"{x.topic}-{x.partition}" for x in partitions[:3])
            raise translate(error, f"reading the positions of {some}")
        time.sleep(_PAUSE_S)
