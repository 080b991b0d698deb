"""The pure parts of a lane: what a position allows, ids, handles that are ready. Transactions: integration/test_rules_positions.py."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Handles, Outcome, Range, decide, transactional_id
from ackwright_stream.positions import Lane, Position

LANE = Lane("flights", 2)
WANTED = Range(LANE, 10, 20)


@pytest.mark.parametrize(("at", "outcome"), [(10, None), (20, Outcome.SKIPPED), (21, Outcome.SKIPPED), (2000, Outcome.SKIPPED)])
def test_rule_3_go_at_the_start_and_skip_from_the_end_on(at: int, outcome: Outcome | None) -> None:
    assert decide(Position(at, "any", 99), WANTED) is outcome


@pytest.mark.parametrize("at", [0, 9, 11, 19])
def test_rule_3_anything_between_or_below_stops(at: int) -> None:
    with pytest.raises(JobError) as caught:
        decide(Position(at), WANTED)
    assert caught.value.reason is Reason.POSITION_CONFLICT
    assert f"is at {at}" in caught.value.message


def test_rule_3_no_position_halts() -> None:
    with pytest.raises(JobError) as caught:
        decide(None, WANTED)
    assert caught.value.reason is Reason.POSITION_LOST


def test_one_id_per_lane_and_one_lane_per_id() -> None:
    groups, topics = ("a", "a/b", "a.b", "b"), ("c", "b-c", "c-1", "c.1")  # a topic's name has no slash
    lanes = [(g, Lane(t, p)) for g, t, p in itertools.product(groups, topics, (0, 1, 11))]
    assert len({transactional_id(g, lane) for g, lane in lanes}) == len(lanes)
    assert transactional_id("a", LANE) == "a/flights-2"


class Factory:
    """Makes numbered handles, and notes which were warmed."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.warmed: list[object] = []
        self.ready = threading.Event()

    def make(self, name: str) -> Any:
        self.made.append(name)
        return f"{name}#{len(self.made)}"

    def warm(self, handle: Any) -> None:
        self.warmed.append(handle)
        self.ready.set()


def test_a_prepared_handle_is_taken_once() -> None:
    factory = Factory()
    handles = Handles(factory.make, factory.warm)
    handles.prepare("a")
    handles.prepare("a")
    assert factory.ready.wait(10)
    first, second = handles.take("a"), handles.take("a")
    assert first == "a#1"
    assert factory.warmed == [first]
    assert second == "a#2"  # not the same again: one epoch carries one transaction


def test_handles_are_not_mixed_up_and_not_hoarded() -> None:
    factory = Factory()
    handles = Handles(factory.make, factory.warm)
    for i in range(300):
        handles.prepare(f"lane-{i}")
    assert len(handles._ready) <= 128
    assert str(handles.take("lane-299")).startswith("lane-299#")
    assert str(handles.take("lane-0")).startswith("lane-0#")
