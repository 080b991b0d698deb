"""Positions: the consumer group's committed offsets, with the topic's id and the driver's incarnation in their metadata.

Nothing here writes. A position moves only in a transaction, see lanes.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from ackwright_stream.connection import translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

_METADATA = re.compile(r"^ackwright/1 topic=(?P<topic>\S*) driver=(?P<driver>\d+)$")
_AGAIN = frozenset(
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


@dataclass(frozen=True, order=True)
class Lane:
    """One partition of a source topic: the unit of order, of fencing and of commits in a stateless pipeline."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Position:
    """The offset of the first record of the lane that is not yet delivered; topic_id and driver say who committed it and about what.

    topic_id is "" and driver 0 if somebody else committed it (a group that is adopted).
    """

    offset: int
    topic_id: str = ""
    driver: int = 0

    def metadata(self) -> str:
        return f"ackwright/1 topic={self.topic_id} driver={self.driver}"


def position(committed: TopicPartition) -> Position | None:
    """What the broker answered, as a position; None if the lane has none."""
    if committed.offset < 0:
        return None
    found = _METADATA.match(committed.metadata or "")
    if not found:
        return Position(committed.offset)
    return Position(committed.offset, found["topic"], int(found["driver"]))


def read(consumer: Consumer, lanes: Iterable[Lane], timeout_s: float) -> dict[Lane, Position | None]:
    """The positions of the lanes, None where there is none. A moved or loading coordinator is asked again until the time is over;
    then JobError(BROKERS_UNREACHABLE). A lane is never reported missing because of an error: the error is looked at first. (rule 9)"""
    wanted = sorted(lanes)
    deadline = time.monotonic() + timeout_s
    while True:
        error: KafkaError | None
        try:
            left = max(0.1, deadline - time.monotonic())
            answer = consumer.committed([TopicPartition(x.topic, x.partition) for x in wanted], timeout=left)
            error = next((x.error for x in answer if x.error), None)
            if error is None:
                return {Lane(x.topic, x.partition): position(x) for x in answer}
        except KafkaException as e:
            error = e.args[0]
        if error.code() not in _AGAIN or time.monotonic() >= deadline:
            raise translate(error, f"reading the positions of {', '.join(map(str, wanted[:3]))}")
        time.sleep(0.02)


def is_given_up(was: str, now: str, given_up: str | None) -> bool:
    """Whether `was`, the topic id in a position or in a lane's record, is that of the topic whose loss a person has accepted. Never the
    present one's: of a topic that is there nothing is lost, and to forget its positions would deliver its records again."""
    return bool(was) and was == given_up and was != now


def standing(lane: Lane, found: Position | None, topic_id: str, given_up: str | None) -> Position | None:
    """The position, if it is one of the topic as it is now. None: there is none, or its topic was given up. Raises
    JobError(TOPIC_REPLACED)."""
    if found is None or is_given_up(found.topic_id, topic_id, given_up):
        return None
    check_topic(lane, found, topic_id)
    return found


def check_topic(lane: Lane, found: Position, topic_id: str) -> None:
    """A position of another topic that had the same name says nothing about this one. (rule 8) Raises JobError(TOPIC_REPLACED)."""
    if found.topic_id and topic_id and found.topic_id != topic_id:
        raise replaced(lane, f"its position {found.offset}", found.topic_id, topic_id)


def replaced(lane: Lane, what: str, was: str, now: str) -> JobError:
    """What is left of the lane belongs to another topic of the same name."""
    return JobError(
        Reason.TOPIC_REPLACED,
        f"topic {lane.topic} was deleted and made anew: of partition {lane.partition}, {what} belongs to topic id {was}, the topic now has "
        f"{now}; what was in it is gone: accept that by ackwright accept-topic, or set the group's offsets for the new topic by hand",
    )


def check_incarnation(lane: Lane, found: Position, driver: int) -> None:
    """A position that a younger driver committed: this driver is the zombie. (rule 8) Raises JobError(SUPERSEDED)."""
    if found.driver > driver:
        raise JobError(
            Reason.SUPERSEDED,
            f"driver {found.driver} owns this pipeline now (seen at {lane}); this one, driver {driver}, ends",
        )
