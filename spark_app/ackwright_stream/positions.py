"""Lanes, positions and ranges, and what a position allows a driver to do.

Pure: each sink reads and moves positions in its own store.
"""

from __future__ import annotations

from dataclasses import dataclass

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason


@dataclass(frozen=True, order=True)
class Lane:
    """One source partition of one pipeline: the unit of order, of fencing and of commits."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Position:
    """A lane's committed offset: the first record that is not delivered yet."""

    offset: int
    # Id of the source topic that the offset counts in; "" if another program committed it (an adopted group).
    topic_id: str = ""
    driver: int = 0  # number of the driver that committed it; 0 if another program did


@dataclass(frozen=True)
class Range:
    """The offsets [start, until) of one lane in one batch.

    They bound records and do not count them. (docs/protocol.md#rule-13)
    """

    lane: Lane
    start: int
    until: int


def current_position(
    lane: Lane, position: Position | None, topic_id: str, accepted_loss: str | None
) -> Position | None:
    """The position if it belongs to the current topic; None if there is none, or if the loss of its topic is accepted.

    topic_id: of the current topic. accepted_loss: the topic id whose loss a person has accepted. Raises
    JobError(TOPIC_REPLACED).
    """
    if position is None or is_loss_accepted(position.topic_id, topic_id, accepted_loss):
        return None
    check_topic(lane, position, topic_id)
    return position


def is_loss_accepted(recorded: str, current: str, accepted: str | None) -> bool:
    """Whether `recorded`, the topic id in a position or in a lane's record, is the one whose loss is accepted.

    Never for the current topic: nothing of it is lost, and without its positions its records would be delivered again.
    """
    return bool(recorded) and recorded == accepted and recorded != current


def check_topic(lane: Lane, position: Position, topic_id: str) -> None:
    """Raises JobError(TOPIC_REPLACED) for a position of another topic that had the same name.

    (docs/protocol.md#rule-8)
    """
    if position.topic_id and topic_id and position.topic_id != topic_id:
        raise topic_replaced(lane, f"its position {position.offset}", position.topic_id, topic_id)


def topic_replaced(lane: Lane, what: str, recorded: str, current: str) -> JobError:
    """The error for `what`, a position or a record of the lane, that belongs to another topic of the same name."""
    return JobError(
        Reason.TOPIC_REPLACED,
        # `ackwright accept-topic` searches for "the topic now has <id>;".
        f"topic {lane.topic} was deleted and recreated: in partition {lane.partition}, {what} belongs to topic id "
        f"{recorded}, the topic now has {current}; the old records are gone: accept the loss with ackwright "
        "accept-topic, or set the group's offsets for the new topic by hand",
    )


def check_incarnation(lane: Lane, position: Position, driver: int) -> None:
    """Raises JobError(SUPERSEDED) for a position that a newer driver committed: this driver is a zombie.

    (docs/protocol.md#rule-8)
    """
    if position.driver > driver:
        raise JobError(
            Reason.SUPERSEDED,
            f"driver {position.driver} owns this pipeline now (seen at {lane}); this driver, {driver}, ends",
        )
