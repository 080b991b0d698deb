"""Pull Secrets from the operator's setting: once applied they are no drift, and they are removed with the setting."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.apply import objects as apply
from ackwright.observe.workload import workload
from ackwright.planning.plan import plan
from ackwright.planning.steps import DRIVERS, Apply, Delete, Situation, contains, steps
from ackwright.render.workload import objects
from ackwright.settings import OperatorSettings
from unit.fake_kubernetes import FakeKubernetes
from unit.render.pipelines import MINIMAL, UID, declared


def converge(world: FakeKubernetes, trigger: Any, pull_secrets: tuple[str, ...]) -> None:
    pipeline = declared(MINIMAL, trigger=trigger)
    desired = objects(pipeline, plan(pipeline), UID, OperatorSettings(image_pull_secrets=pull_secrets), identity="uid")
    for _ in range(40):
        todo = steps(desired, workload(world.children(), UID), Situation(may_start=True))
        for step in todo:
            if isinstance(step, Apply):
                apply.apply(world, step)
            elif isinstance(step, Delete):
                apply.delete(world, "ops", step)
        if not world.run() and not todo:
            return
    raise AssertionError(f"still to do: {[str(s) for s in todo]}")


@pytest.mark.parametrize("trigger", [{"interval": "1s"}, {"availableNow": True}])
def test_pull_secrets_are_recognised_once_applied_and_removed_with_the_setting(trigger: Any) -> None:
    world = FakeKubernetes()
    for pull_secrets in ((), ("a",), ("b", "a"), ("b",), ()):
        converge(world, trigger, pull_secrets)
        (driver,) = (o["spec"]["template"]["spec"] for (kind, _), o in world.stored.items() if kind in DRIVERS)
        (pod,) = (p["spec"] for p in world.pods())
        for spec in (driver, pod):
            assert {s["name"] for s in spec.get("imagePullSecrets", ())} == set(pull_secrets)


@pytest.mark.parametrize(("present", "there"), [(["a"], True), (["b", "a"], True), (["b"], False), ([], False)])
def test_pull_secrets_that_others_add_are_no_drift(present: list[str], *, there: bool) -> None:
    desired = {"imagePullSecrets": [{"name": "a"}]}
    assert contains({"imagePullSecrets": [{"name": name} for name in present]}, desired) is there
