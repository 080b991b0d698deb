"""After an upgrade drivers are replaced at a pace, and a new image that does not start stops no more pipelines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ackwright.rollouts import Rollouts
from unit.world import SPEC, World


def upgraded(places: Rollouts | None) -> World:
    """A pipeline that delivers, and an operator of the next release. places: those that it shares; None: its own."""
    world = World().settle()
    world.settings = replace(world.settings, spark_image="ackwright-spark:next")
    world.start_operator()
    if places is not None:
        world.operator._rollouts = places
    return world


def image(world: World) -> str:
    return str(world.kubernetes.stored["StatefulSet", "p"]["spec"]["template"]["spec"]["containers"][0]["image"])


def _volumes(world: World) -> list[Any]:
    volumes: list[Any] = world.kubernetes.stored["Pod", "p-0"]["spec"]["volumes"]
    return volumes


def test_places_are_limited_and_freed() -> None:
    places = Rollouts(1)
    assert [places.admit(uid, "ops") for uid in ("a", "a", "b")] == [True, True, False]
    places.end("a")
    assert places.admit("b", "ops")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_of_the_namespaces_that_wait_the_one_with_the_fewest_places_is_next() -> None:
    clock = Clock()
    places = Rollouts(4, clock=clock)
    large = [f"large-{i}" for i in range(9)]
    assert [places.admit(uid, "large") for uid in large] == [True] * 4 + [False] * 5
    assert not places.admit("small", "small")
    for uid in large[:2]:
        places.end(uid)
    assert [places.admit(uid, "large") for uid in large[4:]] == [False] * 5
    assert places.admit("small", "small")
    assert [places.admit(uid, "large") for uid in large[4:]] == [True, *[False] * 4], "nobody else waits"


def test_a_namespace_that_no_longer_asks_does_not_wait() -> None:
    clock = Clock()
    places = Rollouts(2, clock=clock)
    assert places.admit("a", "ops")
    assert places.admit("b", "ops")
    assert not places.admit("gone", "other")
    places.end("a")
    assert not places.admit("c", "ops")
    clock.now += 61
    assert places.admit("c", "ops")


def test_drivers_that_do_not_start_stop_their_own_namespace_and_no_other_for_long() -> None:
    clock = Clock()
    places = Rollouts(3, late=300, clock=clock)
    assert all(places.admit(f"bad-{i}", "bad") for i in range(3))
    assert not places.admit("good", "good")
    clock.now += 301
    assert not places.admit("bad-3", "bad"), "the release may be the cause"
    assert places.admit("good", "good")
    assert places.admit("good-2", "good")
    assert not places.admit("good-3", "good"), "all late ones of a namespace count as one"
    clock.now += 3600
    for uid in ("good", "good-2"):
        places.end(uid)
    assert [places.admit(uid, "other") for uid in "abc"] == [True, True, True]
    assert not places.admit("bad-3", "bad")


def test_without_leadership_no_place_is_kept() -> None:
    places = Rollouts(1)
    world = upgraded(places)
    assert places.admit("a", "ops")
    world.operator.forget_all()
    assert places.admit("b", "ops")


def _suspend(world: World) -> None:
    world.kubernetes.declare("p", SPEC | {"suspend": True})


def _pause(world: World) -> None:
    """By a topic that differs from its declaration."""
    topics = [{**topic, "driftPolicy": "pause"} for topic in SPEC["topics"]]
    world.kubernetes.declare("p", SPEC | {"topics": topics})
    world.reconcile()
    world.kafka.shape("in", 5, 3)


def _refuse(world: World) -> None:
    """By another rule of the platform."""
    world.operator._policy = replace(world.operator._policy, own_namespace="ops")


@pytest.mark.parametrize("stop", [_suspend, _pause, _refuse])
def test_a_pipeline_that_is_not_to_run_any_more_frees_its_place(stop: Callable[[World], None]) -> None:
    places = Rollouts(1)
    world = upgraded(places)
    world.kubernetes.ready = False
    world.reconcile()
    assert not places.admit("another pipeline", "ops")
    stop(world)
    for _ in range(9):
        world.reconcile()
    assert places.admit("another pipeline", "ops")


def test_a_bounded_run_that_ends_frees_its_place() -> None:
    places = Rollouts(1)
    world = World(SPEC | {"trigger": {"availableNow": True}})
    world.operator._rollouts = places
    world.settle()
    assert places.admit(world.resource["metadata"]["uid"], "ops")
    world.kubernetes.complete("p", "2026-11-21T12:00:00Z")
    world.settle()
    assert places.admit("another pipeline", "ops")


def test_a_driver_waits_for_its_turn_and_delivers_meanwhile() -> None:
    places = Rollouts(1)
    assert places.admit("another pipeline", "ops")
    world = upgraded(places)
    [config] = [v["configMap"]["name"] for v in _volumes(world) if "configMap" in v]
    for _ in range(10):
        world.reconcile()
    assert image(world) == "ackwright-spark:latest"
    assert world.conditions("Ready", "Reconciling", "Stalled") == [
        *("True/Delivering", "True/Progressing", "False/NotStalled"),
    ]
    assert ("ConfigMap", config) in world.kubernetes.stored
    places.end("another pipeline")
    world.settle()
    assert image(world) == "ackwright-spark:next"
    assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "False/Settled"]
    assert places.admit("a third pipeline", "ops"), "the place is free again"


def test_control_without_a_limit_the_driver_is_replaced_at_once() -> None:
    world = upgraded(None)
    world.reconcile()
    assert image(world) == "ackwright-spark:next"


def test_a_new_driver_that_does_not_start_keeps_the_place() -> None:
    places = Rollouts(1)
    world = upgraded(places)
    world.kubernetes.ready = False
    for _ in range(20):
        world.reconcile()
    assert image(world) == "ackwright-spark:next"
    assert not places.admit("another pipeline", "ops")


@pytest.mark.parametrize("ready", [True, False])
def test_neither_an_edit_nor_a_driver_that_is_not_ready_waits(ready: bool) -> None:
    places = Rollouts(1)
    assert places.admit("another pipeline", "ops")
    world = upgraded(places)
    if ready:
        world.kubernetes.declare("p", SPEC | {"trigger": {"interval": "2s"}})
    else:
        world.kubernetes.stored["Pod", "p-0"]["status"]["conditions"] = []
    world.reconcile()
    assert image(world) == "ackwright-spark:next"
