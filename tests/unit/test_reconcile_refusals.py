"""Steps that the API server refuses are reported, retried and completed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ackwright.clients.kubernetes import ApiError
from unit.world import World


@pytest.fixture
def world() -> World:
    return World()


def test_a_refused_step_is_reported_once_and_heals(world: World) -> None:
    world.kubernetes.refuse["create RoleBinding"] = ApiError(403, "may not")
    world.settle()
    assert world.conditions("Stalled", "Reconciling") == ["True/KubernetesRefused", "False/Stalled"]
    assert "StatefulSet" not in world.kinds(), "what comes after it waits"
    written, events = world.statuses_written(), len(world.kubernetes.recorded)
    for _ in range(5):
        world.reconcile()
    assert (world.statuses_written(), len(world.kubernetes.recorded)) == (written, events)
    world.kubernetes.refuse.clear()
    assert world.settle().conditions("Ready", "Stalled") == ["True/Delivering", "False/NotStalled"]


def fails(world: World, seconds: float) -> Iterator[str]:
    """Reconciles that raise, for so many seconds. Yields the condition Stalled after each."""
    until, world.seconds_between = world.seconds + seconds, 40
    while world.seconds < until:
        with pytest.raises(ApiError):
            world.reconcile()
        yield world.condition("Stalled")


def test_a_failing_api_server_is_retried_and_reported_after_the_deadline(world: World) -> None:
    world.kubernetes.refuse["create StatefulSet"] = ApiError(500, "etcd is away")
    assert set(fails(world, 250)) == {"False/NotStalled"}
    assert world.statuses_written() == 2, "what was to be done at first, and what is left"
    *_, last = fails(world, 100)
    assert last == "True/DeadlineExceeded"
    assert set(fails(world, 100)) == {"True/DeadlineExceeded"}, "it does not flap"
    assert world.statuses_written() == 3
    world.kubernetes.refuse.clear()
    assert world.settle().conditions("Ready", "Stalled") == ["True/Delivering", "False/NotStalled"]


def test_an_edit_on_the_way_has_the_whole_time_again(world: World) -> None:
    world.kubernetes.refuse["create StatefulSet"] = ApiError(500, "etcd is away")
    assert set(fails(world, 280)) == {"False/NotStalled"}
    world.resource["metadata"]["generation"] += 1
    world.resource["spec"]["trigger"] = {"interval": "3s"}
    assert set(fails(world, 240)) == {"False/NotStalled"}
    *_, last = fails(world, 100)
    assert last == "True/DeadlineExceeded"
