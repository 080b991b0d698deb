"""What a position allows: it has to be of the current topic and of no newer driver."""

from __future__ import annotations

import pytest

from ackwright_stream import positions
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position

LANE = Lane("flights", 3)


def test_a_position_of_another_topic_halts() -> None:
    with pytest.raises(JobError) as caught:
        positions.check_topic(LANE, Position(5, "old"), "new")
    assert caught.value.reason is Reason.TOPIC_REPLACED
    for position in (Position(5, "new"), Position(5)):
        positions.check_topic(LANE, position, "new")


def test_a_younger_drivers_position_ends_this_one() -> None:
    with pytest.raises(JobError) as caught:
        positions.check_incarnation(LANE, Position(5, "t", 8), 7)
    assert caught.value.reason is Reason.SUPERSEDED
    for driver in (7, 0):
        positions.check_incarnation(LANE, Position(5, "t", driver), 7)
