"""The pure parts of a transaction: what positions allow, and the ids of slots.

Transactions: integration/protocol/test_rules_positions.py.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import KafkaSink, Reason
from ackwright_stream.lanes import Outcome, decide
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.kafka.transactions import transactional_id
from minimal_job import minimal_job, with_positions

LANE = Lane("flights", 2)
RANGE = Range(LANE, 10, 20)
DRIVER = 7


def decided(position: Position | None) -> Outcome | None:
    return decide({LANE: position}, [RANGE], DRIVER)


@pytest.mark.parametrize(
    ("at", "outcome"), [(10, None), (20, Outcome.SKIPPED), (21, Outcome.SKIPPED), (2000, Outcome.SKIPPED)]
)
def test_rule_3_go_at_the_start_and_skip_from_the_end_on(at: int, outcome: Outcome | None) -> None:
    assert decided(Position(at, "any", DRIVER)) is outcome


@pytest.mark.parametrize("at", [0, 9, 11, 19])
def test_rule_3_anything_between_or_below_stops(at: int) -> None:
    with pytest.raises(JobError) as caught:
        decided(Position(at, "any", DRIVER))
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert f"is at {at}, committed by driver {DRIVER}" in caught.value.message


def test_rule_3_no_position_halts() -> None:
    with pytest.raises(JobError) as caught:
        decided(None)
    assert caught.value.reason is Reason.POSITION_LOST


@pytest.mark.parametrize("at", [0, 10, 20, 2000])
def test_rule_3_an_offset_that_another_program_set_halts_wherever_it_is(at: int) -> None:
    """Beyond the range it seems that the range was delivered, and at its start that nothing has happened."""
    with pytest.raises(JobError) as caught:
        decided(Position(at))
    assert caught.value.reason is Reason.POSITIONS_MOVED
    assert f"{LANE}: {at}" in caught.value.message
    assert "accept-positions" not in caught.value.message, "other lanes may have been moved as well"


@pytest.mark.parametrize("driver", [DRIVER - 1, DRIVER + 1])
@pytest.mark.parametrize("at", [10, 15, 20, 2000])
def test_rule_3_the_position_of_another_driver_stops_wherever_it_is(at: int, driver: int) -> None:
    with pytest.raises(JobError) as caught:
        decided(Position(at, "any", driver))
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert f"committed by driver {driver}, and not at the start of [10, 20) for driver {DRIVER}" in caught.value.message


def test_rule_3_a_task_whose_lanes_differ_stops() -> None:
    other = Range(Lane("flights", 3), 0, 5)
    with pytest.raises(JobError) as caught:
        decide({LANE: Position(10, "t", DRIVER), other.lane: Position(5, "t", DRIVER)}, [RANGE, other], DRIVER)
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert "flights-2" in caught.value.message
    assert "flights-3" in caught.value.message


@st.composite
def lanes_of_a_task(draw: st.DrawFn) -> dict[Range, Position | None]:
    """Ranges, each with the position of its lane: mostly the own one, at the range's start or behind its end."""
    lanes: dict[Range, Position | None] = {}
    for partition in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, 5))
        until = start + draw(st.integers(1, 4))
        offset = draw(st.sampled_from([start, until, start, until + 3, until - 1, start + 1, max(0, start - 1)]))
        driver = draw(st.sampled_from([DRIVER] * 6 + [0, DRIVER - 1, DRIVER + 1]))
        position = draw(st.sampled_from([Position(offset, "t", driver)] * 7 + [None]))
        lanes[Range(Lane("t", partition), start, until)] = position
    return lanes


@given(lanes_of_a_task())
def test_rule_3_only_own_positions_at_all_starts_or_at_all_ends_decide(lanes: dict[Range, Position | None]) -> None:
    ranges = list(lanes)
    current = {r.lane: position for r, position in lanes.items()}
    own = all(p is not None and p.driver == DRIVER for p in current.values())
    at = {lane: -1 if p is None else p.offset for lane, p in current.items()}
    expected: Outcome | type[JobError] | None = JobError
    if own and all(at[r.lane] == r.start for r in ranges):
        expected = None
    elif own and all(at[r.lane] >= r.until for r in ranges):
        expected = Outcome.SKIPPED
    outcome: Outcome | type[JobError] | None
    try:
        outcome = decide(current, ranges, DRIVER)
    except JobError:
        outcome = JobError
    assert outcome is expected


def test_one_id_per_slot_and_one_slot_per_id() -> None:
    """Also beside the ids of drivers and of the lanes of earlier releases. A topic's name has no slash."""
    groups = ("a", "a/b", "a.b", "b", "a/slots")
    jobs = {
        g: with_positions(
            minimal_job(),
            slot_transactional_id_prefix=f"{g}/slots/",
            lane_transactional_id_prefix=f"{g}/",
            driver_transactional_id=g,
        )
        for g in groups
    }
    slots = {transactional_id(jobs[g], slot) for g, slot in itertools.product(groups, (0, 1, 11))}
    assert len(slots) == len(groups) * 3
    lanes = {
        f"{jobs[g].sink_of(KafkaSink).positions.lane_transactional_id_prefix}{Lane(t, p)}"
        for g, t, p in itertools.product(groups, ("slots", "0", "a"), (0, 1, 11))
    }
    assert not slots & (lanes | set(groups))
    assert transactional_id(minimal_job(group="a"), 3) == "a/slots/3"
