"""After an upgrade drivers are replaced at a pace, and a new image that does not start stops no more pipelines."""

from __future__ import annotations

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
    assert [places.admit("a"), places.admit("a"), places.admit("b")] == [True, True, False]
    places.end("a")
    assert places.admit("b")


def test_a_driver_waits_for_its_turn_and_delivers_meanwhile() -> None:
    places = Rollouts(1)
    assert places.admit("another pipeline")
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
    assert places.admit("a third pipeline"), "the place is free again"


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
    assert not places.admit("another pipeline")


@pytest.mark.parametrize("ready", [True, False])
def test_neither_an_edit_nor_a_driver_that_is_not_ready_waits(ready: bool) -> None:
    places = Rollouts(1)
    assert places.admit("another pipeline")
    world = upgraded(places)
    if ready:
        world.kubernetes.declare("p", SPEC | {"trigger": {"interval": "2s"}})
    else:
        world.kubernetes.stored["Pod", "p-0"]["status"]["conditions"] = []
    world.reconcile()
    assert image(world) == "ackwright-spark:next"
