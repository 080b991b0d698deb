"""A topic that was deleted and recreated: the rest of the old one halts, until a person accepts its loss.

On brokers: integration/topics/test_topic_replaced.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ackwright_stream import ownership, positions
from ackwright_stream.cluster import Topology
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import (
    Reason,
    from_json,
    to_json,
)
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Position
from ackwright_stream.reports import LostTopic
from minimal_job import minimal_job
from position_store import PositionStore

OLD, NOW, OTHER = "old-topic", "new-topic", "another"
JOB = minimal_job(topics=("flights",), starting_offsets="latest")
A, B = Lane("flights", 0), Lane("flights", 1)


def test_the_jobspec_carries_it() -> None:
    job = replace(JOB, accepted_losses={"flights": OLD})
    assert from_json(to_json(job)) == job
    assert from_json(to_json(JOB)).accepted_losses == {}


@pytest.mark.parametrize(
    ("position", "accepted_id", "expected"),
    [
        (None, OLD, None),
        (Position(5, OLD), OLD, None),
        (Position(5, NOW), OLD, Position(5, NOW)),
        (Position(5, NOW), NOW, Position(5, NOW)),  # the loss of the current topic cannot be accepted
        (Position(5), OLD, Position(5)),
        (Position(5), "", Position(5)),
    ],
)
def test_a_position_of_an_accepted_loss_is_none(
    position: Position | None, accepted_id: str, expected: Position | None
) -> None:
    assert positions.current_position(A, position, NOW, accepted_id) == expected


@pytest.mark.parametrize("accepted_id", [None, OTHER, NOW])
def test_another_acceptance_changes_nothing(accepted_id: str | None) -> None:
    with pytest.raises(JobError) as caught:
        positions.current_position(A, Position(5, OLD), NOW, accepted_id)
    assert caught.value.reason is Reason.TOPIC_REPLACED
    for part in (OLD, NOW, "ackwright accept-topic", "topic flights"):
        assert part in caught.value.message


def missing(
    records: Mapping[Lane, str],
    committed: Mapping[Lane, Position] | None = None,
    accepted_id: str | None = OLD,
) -> tuple[dict[Lane, Position | None], frozenset[str]]:
    """What becomes of both lanes, which had no position when they were fenced."""
    sink: Any = PositionStore(committed or {}, records)
    job = replace(JOB, accepted_losses={"flights": accepted_id} if accepted_id else {})
    lanes = Lanes(job, sink, b"membership", 1, {"flights": NOW})
    return ownership._missing_positions(lanes, [A, B], sink.records)


@pytest.mark.parametrize(
    ("records", "committed", "restarted"),
    [
        ({A: OLD, B: OLD}, {}, True),
        ({A: OLD}, {}, True),  # the new topic has more partitions: they are as new as the others
        ({}, {A: Position(3, OLD)}, True),
        ({}, {}, False),
    ],
)
def test_lanes_of_an_accepted_loss_are_new(
    records: Mapping[Lane, str], committed: Mapping[Lane, Position], restarted: bool
) -> None:
    assert missing(records, committed) == ({A: None, B: None}, frozenset({"flights"} if restarted else ()))


@pytest.mark.parametrize(
    ("records", "accepted_id", "reason"),
    [
        ({A: OLD}, None, Reason.TOPIC_REPLACED),
        ({A: OLD}, OTHER, Reason.TOPIC_REPLACED),
        ({A: OLD}, NOW, Reason.TOPIC_REPLACED),
        ({A: OTHER, B: OLD}, OLD, Reason.TOPIC_REPLACED),
        ({A: NOW}, NOW, Reason.POSITION_LOST),
        ({A: NOW}, OLD, Reason.POSITION_LOST),
        ({A: OLD, B: NOW}, OLD, Reason.POSITION_LOST),
        ({A: ""}, OLD, Reason.POSITION_LOST),
    ],
)
def test_a_record_of_any_other_topic_halts(
    records: Mapping[Lane, str], accepted_id: str | None, reason: Reason
) -> None:
    with pytest.raises(JobError) as caught:
        missing(records, accepted_id=accepted_id)
    assert caught.value.reason is reason
    assert (OLD in caught.value.message or OTHER in caught.value.message) is (reason is Reason.TOPIC_REPLACED)
    lost = caught.value.lost_topic
    if reason is Reason.TOPIC_REPLACED:
        assert lost in (LostTopic("flights", OLD, NOW), LostTopic("flights", OTHER, NOW))
    else:
        assert lost is None


def test_a_lane_that_another_driver_has_begun_meanwhile_has_its_position() -> None:
    begun = Position(0, NOW, 2)
    assert missing({A: NOW, B: OLD}, {A: begun}) == ({A: begun, B: None}, frozenset({"flights"}))


@pytest.mark.parametrize(("restarted", "start"), [(frozenset({"flights"}), 3), (frozenset(), 9)])
def test_they_start_at_the_earliest_offset_whatever_was_asked_for(restarted: frozenset[str], start: int) -> None:
    topology = Topology({"flights": NOW}, earliest={A: 3}, latest={A: 9})
    assert ownership._starts(JOB, topology, {A: None}, restarted) == ({A: start}, 0)
