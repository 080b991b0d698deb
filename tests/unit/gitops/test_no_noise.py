"""A converged pipeline that is applied again, replaced, labelled or annotated stays as it is: nothing is written, nothing restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from unit.world import SPEC, World

Object = dict[str, Any]


def labelled(resource: Object) -> None:
    resource["metadata"]["labels"] = {
        "app.kubernetes.io/instance": "p",
        "kustomize.toolkit.fluxcd.io/name": "pipelines",
    }


def annotated(resource: Object) -> None:
    resource["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": SPEC}),
        "argocd.argoproj.io/tracking-id": "pipelines:ackwright.io/DeliveryPipeline:ops/p",
        "reconcile.fluxcd.io/requestedAt": "2026-11-22T00:00:00Z",
    }


def managed(resource: Object) -> None:
    resource["metadata"]["managedFields"] = [
        {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": {"f:spec": {}}}
    ]


def applied_again(resource: Object) -> None:
    """Only the version differs."""


def replaced(resource: Object) -> None:
    """As by `kubectl replace`: the same spec, in another order, and none of the metadata that others had set."""
    resource["spec"] = dict(reversed(json.loads(json.dumps(resource["spec"])).items()))
    for field in ("labels", "annotations"):
        resource["metadata"].pop(field, None)


def children(world: World) -> dict[tuple[str, str], Object]:
    return {k: json.loads(json.dumps(o)) for k, o in world.kubernetes.stored.items() if k[0] != "DeliveryPipeline"}


def touch(world: World, change: Callable[[Object], None]) -> list[str]:
    """What is written, to Kubernetes and to Kafka, after the pipeline was changed so and looked at as a whole."""
    key = "DeliveryPipeline", "p"
    resource = json.loads(json.dumps(world.resource))
    change(resource)
    resource["metadata"]["resourceVersion"] += "0"
    world.kubernetes.stored[key] = resource
    before = len(world.kubernetes.writes)
    world.settle()
    return world.kubernetes.writes[before:]


@pytest.mark.parametrize("change", [applied_again, labelled, annotated, managed, replaced], ids=lambda f: f.__name__)
@pytest.mark.parametrize("spec", [SPEC, SPEC | {"suspend": True}], ids=["running", "suspended"])
def test_nothing_is_written(spec: Object, change: Callable[[Object], None]) -> None:
    world = World(spec).settle()
    before = children(world)
    assert touch(world, change) == []
    assert children(world) == before


def test_an_edit_is_written_all_the_same() -> None:
    """Whether the test above could see anything."""

    def edit(resource: Object) -> None:
        resource["spec"]["transform"] = {"sql": "SELECT key FROM source"}
        resource["metadata"]["generation"] += 1

    world = World().settle()
    before = children(world)
    assert touch(world, edit) != []
    assert children(world) != before


def test_a_spec_that_only_spells_out_what_holds_anyway_restarts_nothing() -> None:
    world = World().settle()
    before = children(world)
    world.kubernetes.declare("p", SPEC | {"suspend": False, "tolerate": {"brokerFailures": 1}})
    world.settle()
    assert world.resource["status"]["observedGeneration"] == 2
    assert children(world) == before
