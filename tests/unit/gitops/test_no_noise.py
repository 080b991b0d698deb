"""The operator writes and restarts nothing when tools apply, replace, label or annotate a converged pipeline."""

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
    """Changes only the resource version."""


def replaced(resource: Object) -> None:
    """Like `kubectl replace`: the same spec in another order, without the metadata of other tools."""
    resource["spec"] = dict(reversed(json.loads(json.dumps(resource["spec"])).items()))
    for field in ("labels", "annotations"):
        resource["metadata"].pop(field, None)


def children(world: World) -> dict[tuple[str, str], Object]:
    return {k: json.loads(json.dumps(o)) for k, o in world.kubernetes.stored.items() if k[0] != "DeliveryPipeline"}


def touch(world: World, change: Callable[[Object], None]) -> list[str]:
    """The writes to Kubernetes and Kafka after this change of the pipeline, until the operator has converged."""
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


def test_an_edit_of_the_spec_is_written() -> None:
    """The control of the test above."""

    def edit(resource: Object) -> None:
        resource["spec"]["transform"] = {"sql": "SELECT key FROM source"}
        resource["metadata"]["generation"] += 1

    world = World().settle()
    before = children(world)
    assert touch(world, edit) != []
    assert children(world) != before


def test_a_spec_with_explicit_defaults_restarts_nothing() -> None:
    world = World().settle()
    before = children(world)
    world.kubernetes.declare("p", SPEC | {"suspend": False, "tolerate": {"brokerFailures": 1}})
    world.settle()
    assert world.resource["status"]["observedGeneration"] == 2
    assert children(world) == before
