"""A driver that has halted: the status names what a person may accept, as long as the halt lasts."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright_stream import positions
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.reports import Ending, Failure
from unit.world import RUNNING, SPEC, World

LANE = Lane("in", 0)
MOVED = positions.moved([(LANE, Position(3))], namespace="ops", name="p")
RECREATED = positions.topic_replaced(LANE, "its position 5", "old", "now")
FIELDS = {"movedPositions", "lostTopics"}


@pytest.fixture
def running() -> World:
    return World().settle()


def halted(world: World, error: JobError) -> World:
    return world.end_driver(Ending(error.exit_code, error.failure))


def acceptable(world: World) -> dict[str, Any]:
    """What the status names for a person to accept."""
    return {name: value for name, value in world.resource["status"].items() if name in FIELDS}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MOVED, {"movedPositions": {"fingerprint": positions.fingerprint([(LANE, Position(3))])}}),
        (RECREATED, {"lostTopics": [{"name": "in", "id": "old", "currentId": "now"}]}),
        (positions.has_moved(LANE, Position(3)), {}),
    ],
)
def test_it_is_there_until_the_driver_has_resumed(running: World, error: JobError, expected: dict[str, Any]) -> None:
    assert acceptable(running) == {}
    halted(running, error)
    assert running.condition("Stalled") == f"True/{error.reason}"
    assert acceptable(running) == expected
    for _ in range(3):
        running.seconds += 3600
        running.reconcile()
        assert acceptable(running) == expected
    running.start_operator()
    assert acceptable(running.settle()) == expected, "of the pod, not of the operator's memory"
    running.progress, running.kubernetes.ready = RUNNING, True
    assert running.settle().condition("Ready") == "True/Delivering"
    assert acceptable(running) == {}


def test_a_halt_at_other_positions_replaces_the_fingerprint(running: World) -> None:
    halted(running, MOVED)
    later = positions.moved([(LANE, Position(4))], namespace="ops", name="p")
    assert acceptable(halted(running, later)) == {"movedPositions": {"fingerprint": later.fingerprint}}


def test_a_driver_of_an_earlier_release_reports_a_message_alone(running: World) -> None:
    halted(running, JobError(MOVED.reason, MOVED.message))
    assert running.condition("Stalled") == "True/PositionsMoved"
    assert acceptable(running) == {}


def test_another_reason_names_nothing(running: World) -> None:
    running.end_driver(Ending(3, Failure(Reason.POSITION_LOST, "lane in-0 has no position; set one")))
    assert running.condition("Stalled") == "True/PositionLost"
    assert acceptable(running) == {}


def test_a_topic_that_is_deleted_after_the_halt_is_named_once_as_it_is_now(running: World) -> None:
    halted(running, RECREATED)
    del running.kafka.existing["in"]
    running.settle()
    assert running.conditions("Stalled", "TopicsReady") == ["True/TopicReplaced", "False/TopicMissing"]
    assert acceptable(running) == {"lostTopics": [{"name": "in", "id": "id-in"}]}


def test_a_pipeline_that_this_release_finds_invalid_names_nothing(running: World) -> None:
    halted(running, MOVED)
    running.resource["status"]["accepted"]["spec"]["guarantee"] = "of another release"
    running.kubernetes.declare("p", SPEC | {"guarantee": "of another release"})
    running.reconcile()
    assert running.condition("Stalled") == "True/InvalidSpec"
    assert acceptable(running) == {}
