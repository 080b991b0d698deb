"""What a position allows: it has to be of the current topic and of no newer driver."""

from __future__ import annotations

import pytest
from confluent_kafka import Uuid
from hypothesis import given
from hypothesis import strategies as st

from ackwright_stream import positions
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.reports import Failure, LostTopic

LANE = Lane("flights", 3)


def test_a_position_of_another_topic_halts() -> None:
    with pytest.raises(JobError) as caught:
        positions.check_topic(LANE, Position(5, "old"), "new")
    assert caught.value.reason is Reason.TOPIC_REPLACED
    assert caught.value.failure.lost_topic == LostTopic("flights", "old", "new")
    for position in (Position(5, "new"), Position(5)):
        positions.check_topic(LANE, position, "new")


def test_an_id_that_is_not_kafkas_is_reported_in_the_message_alone() -> None:
    """Any program can commit an offset with metadata in the form of a driver's."""
    error = positions.topic_replaced(LANE, "its position 5", "x" * 4000, "new")
    assert error.failure.lost_topic is None
    assert "x" * 4000 in error.message


def test_an_id_as_librdkafka_writes_it_is_one() -> None:
    """It contains + or / in about half of all cases."""
    old, new = str(Uuid(-1, -5)), str(Uuid(0x7BFFFBFF3BFFEB3F, -0x0404040404040405))
    assert "/" in old
    assert "+" in new
    lost = LostTopic("flights", old, new)
    failure = positions.topic_replaced(Lane("flights", 0), "its position 5", old, new).failure
    assert failure.lost_topic == Failure.of_json(failure.as_json()).lost_topic == lost


def test_a_younger_drivers_position_ends_this_one() -> None:
    with pytest.raises(JobError) as caught:
        positions.check_driver(Position(5, "t", 8), 7)
    assert caught.value.reason is Reason.SUPERSEDED
    for driver in (7, 0):
        positions.check_driver(Position(5, "t", driver), 7)


def test_moved_positions_are_named_with_what_accepts_them() -> None:
    foreign = [(Lane("t", n), Position(10 * n)) for n in range(7)]
    one, all_ = (positions.moved(moved, namespace="ops", name="p") for moved in (foreign[:1], reversed(foreign)))
    assert one.reason is all_.reason is Reason.POSITIONS_MOVED
    assert "moved a position (t-0: 0):" in one.message
    assert "moved 7 positions (t-0: 0, t-1: 10, t-2: 20, t-3: 30, t-4: 40 and 2 more):" in all_.message
    for error, listed in ((one, foreign[:1]), (all_, foreign)):
        assert error.failure.fingerprint == positions.fingerprint(listed)
        assert f"ackwright accept-positions p {positions.fingerprint(listed)} -n ops," in error.message


def test_one_moved_position_of_several_has_no_fingerprint() -> None:
    assert positions.has_moved(LANE, Position(5)).failure.fingerprint is None


Foreign = st.dictionaries(
    st.builds(Lane, st.sampled_from(["a", "a-1", "b"]), st.integers(0, 20)), st.integers(0, 2000), max_size=6
)


def fingerprint(foreign: dict[Lane, int], order: int = 1) -> str:
    return positions.fingerprint([(lane, Position(offset)) for lane, offset in foreign.items()][::order])


@given(Foreign, Foreign)
def test_a_fingerprint_is_of_these_lanes_and_offsets_alone(one: dict[Lane, int], other: dict[Lane, int]) -> None:
    assert (fingerprint(one) == fingerprint(other)) is (one == other)
    assert fingerprint(one) == fingerprint(one, -1)


@given(Foreign.filter(bool), st.data())
def test_an_offset_that_is_set_later_is_not_accepted_with_it(foreign: dict[Lane, int], data: st.DataObject) -> None:
    lane = data.draw(st.sampled_from(sorted(foreign)))
    later = data.draw(st.integers(0, 2000).filter(lambda offset: offset != foreign[lane]))
    assert fingerprint(foreign | {lane: later}) != fingerprint(foreign)
    assert fingerprint({k: v for k, v in foreign.items() if k != lane}) != fingerprint(foreign)


def test_a_fingerprint_stays_what_it_was() -> None:
    """An annotation of an earlier release holds it."""
    assert fingerprint({Lane("flights", 0): 7, Lane("flights", 10): 12}) == "4e0a346d7ed4"
    assert fingerprint({}) == "e3b0c44298fc"
