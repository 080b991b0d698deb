"""Positions name the namespace of a pipeline: one of the same name in another cluster does not take them over."""

from __future__ import annotations

import json
from typing import Any

import pytest

from unit.world import SPEC, World

EDITED = SPEC | {"trigger": {"interval": "7s"}}


def identity(world: World) -> str:
    """What the driver's jobspec has before the uid of the resource."""
    [name] = {
        volume["configMap"]["name"]
        for pod in world.kubernetes.pods()
        for volume in pod["spec"]["volumes"]
        if "configMap" in volume and pod["metadata"]["labels"]["ackwright.io/role"] == "driver"
    }
    text: str = json.loads(world.kubernetes.stored["ConfigMap", name]["data"]["job.json"])["identity"]
    assert text.endswith(world.resource["metadata"]["uid"])
    return text.removesuffix(world.resource["metadata"]["uid"])


def test_a_pipeline_has_the_uid_of_its_namespace() -> None:
    world = World(SPEC).settle()
    assert world.resource["status"]["accepted"]["namespaceUid"] == "uid-of-ops"
    assert identity(world) == "uid-of-ops/"


def test_an_upgrade_restarts_no_driver_and_the_next_edit_gives_it_the_uid() -> None:
    world = World(SPEC).settle()
    del world.resource["status"]["accepted"]["namespaceUid"]  # as a release without it leaves the pipeline
    world.start_operator()
    world.settle()
    assert identity(world) == ""
    world.kubernetes.declare("p", EDITED)
    for _ in range(6):
        world.reconcile()
    world.settle()
    assert identity(world) == "uid-of-ops/"


def test_the_namespace_is_not_read_again_once_the_uid_is_in_the_status(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(SPEC).settle()
    get = world.kubernetes.get

    def without_namespaces(api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        assert kind != "Namespace"
        return get(api_version, kind, namespace, name)

    monkeypatch.setattr(world.kubernetes, "get", without_namespaces)
    world.start_operator()
    world.kubernetes.declare("p", EDITED)
    for _ in range(6):
        world.reconcile()
    world.settle()
    assert identity(world) == "uid-of-ops/"
