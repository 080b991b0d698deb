"""The pure parts of a lane: what a position allows, ids. Transactions: integration/protocol/test_rules_positions.py."""

from __future__ import annotations

import itertools

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome, decide
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.kafka.transactions import transactional_id
from minimal_job import minimal_job

LANE = Lane("flights", 2)
RANGE = Range(LANE, 10, 20)


@pytest.mark.parametrize(
    ("at", "outcome"), [(10, None), (20, Outcome.SKIPPED), (21, Outcome.SKIPPED), (2000, Outcome.SKIPPED)]
)
def test_rule_3_go_at_the_start_and_skip_from_the_end_on(at: int, outcome: Outcome | None) -> None:
    assert decide(Position(at, "any", 99), RANGE) is outcome


@pytest.mark.parametrize("at", [0, 9, 11, 19])
def test_rule_3_anything_between_or_below_stops(at: int) -> None:
    with pytest.raises(JobError) as caught:
        decide(Position(at), RANGE)
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert f"is at {at}" in caught.value.message


def test_rule_3_no_position_halts() -> None:
    with pytest.raises(JobError) as caught:
        decide(None, RANGE)
    assert caught.value.reason is Reason.POSITION_LOST


def test_one_id_per_lane_and_one_lane_per_id() -> None:
    groups, topics = ("a", "a/b", "a.b", "b"), ("c", "b-c", "c-1", "c.1")  # a topic's name has no slash
    jobs = {g: minimal_job(lane_transactional_id_prefix=f"{g}/") for g in groups}
    lanes = [(g, Lane(t, p)) for g, t, p in itertools.product(groups, topics, (0, 1, 11))]
    assert len({transactional_id(jobs[g], lane) for g, lane in lanes}) == len(lanes)
    assert transactional_id(minimal_job(group="a"), LANE) == "a/flights-2"
