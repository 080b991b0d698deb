"""An edit is complete when its driver runs. Until the old driver ends, that one is still ready."""

from __future__ import annotations

import copy

import pytest

from ackwright.planning.observed import DriverPod, Workload
from unit.world import SPEC, World

EDITED = SPEC | {"transform": {"sql": "SELECT key, value FROM source"}}


def looks(world: World) -> None:
    """One reconcile, after which no controller acts."""
    world.operator.reconcile(copy.deepcopy(world.resource), world.kubernetes.children())


def generation(world: World, kind: str) -> int:
    return next(c["observedGeneration"] for c in world.resource["status"]["conditions"] if c["type"] == kind)


def test_nobody_who_waits_for_an_edit_is_told_of_the_driver_before_it() -> None:
    world = World().settle()
    world.kubernetes.declare("p", EDITED)
    for _ in range(3):
        looks(world)
        assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "True/Progressing"]
        assert (generation(world, "Ready"), generation(world, "Reconciling")) == (1, 2)
    world.settle()
    assert world.conditions("Ready", "Reconciling") == ["True/Delivering", "False/Settled"]
    assert (generation(world, "Ready"), generation(world, "Reconciling")) == (2, 2)


def stateful_set(generation: int, seen: int | None, newest: str | None) -> Workload:
    status = {"observedGeneration": seen, "updateRevision": newest}
    found = {"metadata": {"generation": generation}, "status": {k: v for k, v in status.items() if v is not None}}
    return Workload({("StatefulSet", "p"): found}, drivers=(DriverPod("p-0", "u", revision="old"),))


@pytest.mark.parametrize(
    ("workload", "rolling"),
    [
        (stateful_set(2, 1, "old"), True),
        (stateful_set(2, 2, "new"), True),
        (stateful_set(2, 2, "old"), False),
        (stateful_set(2, None, None), False),
        (Workload(stateful_set(2, 1, "new").children), False),
    ],
    ids=["not seen yet", "seen", "done", "nothing said", "no driver"],
)
def test_rolling(workload: Workload, rolling: bool) -> None:
    assert workload.rolling == rolling
