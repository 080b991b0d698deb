"""Objects whose labels somebody has removed or changed: they get them back."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from ackwright.clients.kubernetes import Kubernetes
from ackwright.controller import OURS, Controller
from ackwright.render.names import PIPELINE_LABEL
from ackwright.settings import OperatorSettings
from unit.world import SPEC, World


class Watched(World):
    """A world in which the watches report only what has the operator's labels."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        super().__init__(spec)
        everything = self.kubernetes.children
        self.kubernetes.children = lambda: [  # type: ignore[method-assign]
            o for o in everything() if {**OURS, PIPELINE_LABEL: "p"}.items() <= o["metadata"]["labels"].items()
        ]


@pytest.mark.parametrize("kind", ["StatefulSet", "ConfigMap", "PodDisruptionBudget", "Role"])
@pytest.mark.parametrize("labels", [{}, {**OURS, PIPELINE_LABEL: "another"}])
def test_labels_are_restored_while_the_driver_runs(kind: str, labels: dict[str, str]) -> None:
    world = Watched(SPEC | {"spark": {"executor": {"instances": 2}}}).settle()
    present = [key for key in world.kubernetes.stored if key[0] == kind]
    if not present:
        pytest.skip("this pipeline has none")
    for key in present:
        world.kubernetes.stored[key]["metadata"] |= {"labels": dict(labels), "resourceVersion": "changed"}
    pods = world.kubernetes.pods()
    uids = [pod["metadata"]["uid"] for pod in pods]
    for _ in range(3):
        world.reconcile()
    for key in present:
        assert world.kubernetes.stored[key]["metadata"]["labels"][PIPELINE_LABEL] == "p"
    assert [pod["metadata"]["uid"] for pod in world.kubernetes.pods()] == uids, "the driver continues"


def test_an_edit_has_effect_although_the_stateful_set_had_lost_its_labels() -> None:
    world = Watched().settle()
    world.kubernetes.stored["StatefulSet", "p"]["metadata"]["labels"] = {}
    world.kubernetes.declare("p", SPEC | {"suspend": True})
    world.settle()
    assert world.condition("JobRunning") == "False/Suspended"
    assert world.kubernetes.pods() == []


def test_a_child_whose_label_names_another_pipeline_is_no_longer_of_the_first_one() -> None:
    """A list of all children does not have it for the first one, either."""
    controller = Controller(cast(Kubernetes, object()), OperatorSettings())
    meta = {"name": "p", "namespace": "ops", "uid": "s", "resourceVersion": "1", "labels": {PIPELINE_LABEL: "p"}}
    child: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": meta}
    resource = {"kind": "DeliveryPipeline", "metadata": {**meta, "uid": "u"}, "spec": SPEC}
    controller.update("ADDED", resource)
    controller.update("ADDED", child)
    controller.worklist.forget(("ops", "p"))
    changed = copy.deepcopy(child)
    changed["metadata"] |= {"resourceVersion": "2", "labels": {PIPELINE_LABEL: "q"}}
    controller.update("MODIFIED", changed)
    assert set(controller.children) == {("ops", "q")}
    assert ("ops", "p") in controller.worklist._due
    restored = copy.deepcopy(child)
    restored["metadata"]["resourceVersion"] = "3"
    controller.replace("StatefulSet", None, [restored])
    assert set(controller.children) == {("ops", "p")}
    controller.update("DELETED", restored)
    assert (controller.children, controller._pipeline_of) == ({}, {})
