"""An edit is complete when its driver runs. Until the old driver ends, that one is still ready."""

from __future__ import annotations

import copy

import pytest

from ackwright.planning.observed import DriverPod, Workload
from unit.world import SPEC, World

EDITED = SPEC | {"transform": {"sql": "SELECT key, value FROM source"}}


def reconcile_alone(world: World) -> None:
    """One reconcile, after which no controller acts."""
    world.operator.reconcile(copy.deepcopy(world.resource), world.kubernetes.children())


def generation(world: World, kind: str) -> int:
    conditions = {c["type"]: int(c["observedGeneration"]) for c in world.resource["status"]["conditions"]}
    return conditions[kind]


def test_an_edit_is_not_reported_ready_while_the_previous_driver_runs() -> None:
    world = World().settle()
    world.kubernetes.declare("p", EDITED)
    for _ in range(3):
        reconcile_alone(world)
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
