"""After an edit of the sink's address, a pipeline that has delivered halts at a server without its positions."""

from __future__ import annotations

import json
from typing import Any

from ackwright_stream.reports import Ending
from unit.world import SPEC, World

POSTGRES = {
    "host": "db.example.com",
    "database": "shop",
    "credentialsSecret": {"name": "db-login"},
    "table": "orders",
}
STATELESS = SPEC | {"transform": {"sql": "SELECT 1 AS id FROM source"}}


def into(**sink: Any) -> dict[str, Any]:
    return STATELESS | {"sink": {"postgres": {**POSTGRES, **sink}}}


def edited(world: World, spec: dict[str, Any]) -> World:
    """The pipeline after an edit that passes its check."""
    world.kubernetes.check_ending = Ending(0)
    world.kubernetes.declare("p", spec)
    for _ in range(6):
        world.reconcile()
    return world.settle()


def expecting(world: World) -> dict[str, bool]:
    """By the role of a pod, whether its job expects positions."""
    answers = {}
    for pod in world.kubernetes.pods():
        [name] = [v["configMap"]["name"] for v in pod["spec"]["volumes"] if "configMap" in v]
        job = json.loads(world.kubernetes.stored["ConfigMap", name]["data"]["job.json"])
        answers[pod["metadata"]["labels"]["ackwright.io/role"]] = job.get("expects_positions", False)
    return answers


def pod_of(world: World) -> str:
    return str(world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"])


def test_it_expects_positions_once_the_sink_has_changed() -> None:
    world = World(into()).settle()
    assert expecting(world) == {"driver": False}
    edited(world, into() | {"trigger": {"interval": "7s"}})
    assert expecting(world) == {"driver": False}, "the sink is the same"
    edited(world, into(host="other.example.com"))
    assert expecting(world) == {"driver": True}
    edited(world, into(host="other.example.com") | {"trigger": {"interval": "7s"}})
    assert expecting(world) == {"driver": True}, "a driver that restarts meets the same server"


def test_the_check_of_the_edit_expects_them_before_the_driver_is_replaced() -> None:
    world = World(into()).settle()
    before = pod_of(world)
    world.kubernetes.check_ending = None
    world.kubernetes.declare("p", into(host="other.example.com"))
    for _ in range(6):
        world.reconcile()
    assert (expecting(world), pod_of(world)) == ({"driver": False, "check": True}, before)


def test_it_expects_them_also_after_an_edit_that_was_not_checked_because_no_driver_delivers() -> None:
    """The old server is gone, and the edit is the remedy."""
    world = World(into()).settle()
    world.progress, world.kubernetes.ready = None, False
    world.reconcile()
    world.kubernetes.declare("p", into(host="other.example.com"))
    for _ in range(6):
        world.reconcile()
    assert expecting(world) == {"driver": True}


def test_a_pipeline_that_has_never_delivered_expects_none() -> None:
    world = World(into())
    world.progress, world.kubernetes.ready = None, False
    for _ in range(6):
        world.reconcile()
    world.kubernetes.declare("p", into(host="other.example.com"))
    for _ in range(6):
        world.reconcile()
    assert expecting(world) == {"driver": False}


def test_an_edit_that_changes_nothing_of_the_job_does_not_restart_it() -> None:
    topics = [{**topic, "config": {"retention.ms": "3600000"}} for topic in SPEC.get("topics", ())]
    world = World(into()).settle()
    before = pod_of(world)
    edited(world, into() | {"topics": topics})
    assert pod_of(world) == before


def test_a_sink_in_kafka_has_its_records_of_lanes() -> None:
    world = World(SPEC).settle()
    [(kind, sink)] = SPEC["sink"].items()
    edited(world, SPEC | {"sink": {kind: {**sink, "format": "string"}}})
    assert expecting(world) == {"driver": False}
