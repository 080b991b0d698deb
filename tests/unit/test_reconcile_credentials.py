"""Reconciles pipelines whose Secrets change."""

from __future__ import annotations

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from unit.world import SPEC, World


def credentials(world: World) -> str | None:
    annotations = world.kubernetes.stored["StatefulSet", "p"]["spec"]["template"]["metadata"]["annotations"]
    return annotations.get("ackwright.io/credentials")  # type: ignore[no-any-return]


def test_other_credentials_replace_the_driver_once_and_only_if_they_can_be_read_and_used() -> None:
    world = World()
    world.connections.secrets = "first"
    world.settle()
    assert credentials(world) == "first"
    pod = world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"]
    world.connections.secrets = None
    world.settle()
    assert (credentials(world), world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"]) == ("first", pod)
    world.connections.secrets = "second"
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "connecting to k:9092 failed; check the network")
    world.settle()
    assert (credentials(world), world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"]) == ("first", pod), (
        "brokers have not taken them"
    )
    world.kafka.down = None
    world.settle()
    assert credentials(world) == "second"
    assert world.kubernetes.stored["Pod", "p-0"]["metadata"]["uid"] != pod
    writes = len(world.kubernetes.writes)
    world.settle()
    assert len(world.kubernetes.writes) == writes


def test_a_pipeline_without_credentials_says_nothing_of_them() -> None:
    world = World().settle()
    assert credentials(world) is None


def test_a_bounded_run_is_not_run_again_for_other_credentials() -> None:
    world = World(SPEC | {"trigger": {"availableNow": True}})
    world.connections.secrets = "first"
    world.settle()
    uid = world.kubernetes.stored["Job", "p"]["metadata"]["uid"]
    world.connections.secrets = "second"
    world.settle()
    assert world.kubernetes.stored["Job", "p"]["metadata"]["uid"] == uid
