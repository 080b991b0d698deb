"""An edit is complete when its driver runs. Until the old driver ends, that one is still ready."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright.planning.observed import DriverPod, Workload
from ackwright_stream.reports import State
from unit.world import RUNNING, SPEC, World

EDITED = SPEC | {"trigger": {"interval": "2s"}}  # an edit that needs no check


SETTLED = "False/Settled"


def generation(world: World, kind: str) -> int:
    conditions = {c["type"]: int(c["observedGeneration"]) for c in world.resource["status"]["conditions"]}
    return conditions[kind]


def test_an_edit_is_not_reported_ready_while_the_previous_driver_runs() -> None:
    world = World().settle()
    world.kubernetes.declare("p", EDITED)
    for _ in range(3):
        world.reconcile_alone()
        assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "True/Progressing"]
        assert (generation(world, "Ready"), generation(world, "Reconciling")) == (1, 2)
    world.settle()
    assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "False/Settled"]
    assert (generation(world, "Ready"), generation(world, "Reconciling")) == (2, 2)


def stateful_set(generation: int, observed: int | None, newest: str | None) -> Workload:
    status = {"observedGeneration": observed, "updateRevision": newest}
    resource = {"metadata": {"generation": generation}, "status": {k: v for k, v in status.items() if v is not None}}
    return Workload({("StatefulSet", "p"): resource}, drivers=(DriverPod("p-0", "u", revision="old"),))


@pytest.mark.parametrize(
    ("workload", "rolling"),
    [
        (stateful_set(2, 1, "old"), True),
        (stateful_set(2, 2, "new"), True),
        (stateful_set(2, 2, "old"), False),
        (stateful_set(2, None, None), False),
        (Workload(stateful_set(2, 1, "new").children), False),
    ],
    ids=["not observed yet", "observed", "done", "no status", "no driver"],
)
def test_rolling(workload: Workload, rolling: bool) -> None:
    assert workload.rolling == rolling


# ------------------------------------------------ a driver and its standby

PAIR = SPEC | {"standby": True}
FIRST, SECOND = "192.0.2.7", "192.0.2.8"  # addresses of the pods p-0 and p-1


def pair(active: str = FIRST) -> World:
    """A pipeline whose driver at this address delivers."""
    world = World(PAIR)
    takes_over(world, active)
    return world.settle()


def takes_over(world: World, active: str) -> None:
    waiting = replace(RUNNING, state=State.STANDBY, driver=0, positions={})
    world.progresses = {FIRST: waiting, SECOND: waiting} | {active: RUNNING}


def deleted(world: World) -> list[str]:
    """The pods that the operator has deleted, in their order."""
    return [write.removeprefix("delete Pod ") for write in world.kubernetes.writes if write.startswith("delete Pod")]


@pytest.mark.parametrize(("active", "order"), [(FIRST, ["p-1", "p-0"]), (SECOND, ["p-0", "p-1"])])
def test_an_edit_replaces_the_standby_first(active: str, order: list[str]) -> None:
    world = pair(active)
    assert world.conditions("Ready", "JobRunning", "Reconciling") == ["True/Delivering", "True/Running", SETTLED]
    world.kubernetes.declare("p", PAIR | {"trigger": EDITED["trigger"]})
    while len(deleted(world)) < 2:
        assert world.condition("Ready") == "True/Delivering"
        world.reconcile()
    takes_over(world, SECOND if active == FIRST else FIRST)
    world.settle()
    assert deleted(world) == order
    assert world.conditions("Ready", "JobRunning", "Reconciling") == ["True/Delivering", "True/Running", SETTLED]


def test_an_edit_whose_driver_does_not_start_leaves_the_one_that_delivers_in_place() -> None:
    world = pair()
    world.kubernetes.declare("p", PAIR | {"trigger": EDITED["trigger"]})
    world.kubernetes.ready = False
    for _ in range(20):
        world.reconcile()
    assert deleted(world) == ["p-1"]
    assert world.conditions("Ready", "JobRunning") == ["True/Delivering", "True/WithoutStandby"]


def test_a_stuck_driver_is_deleted_and_its_standby_is_not() -> None:
    world = pair(SECOND)
    world.progresses[SECOND] = replace(RUNNING, lag=5)
    while not deleted(world):
        world.reconcile()
    assert deleted(world) == ["p-1"]


def test_two_drivers_that_wait_for_a_third_are_not_ready() -> None:
    world = pair()
    takes_over(world, "192.0.2.9")
    for _ in range(3):
        world.reconcile()
    assert world.conditions("Ready", "JobRunning") == ["False/StandingBy", "False/StandingBy"]
