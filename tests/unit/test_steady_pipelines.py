"""A pipeline that has converged: Kafka is read again, and everything is decided again only if something has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ackwright import reconcile
from ackwright.conditions.staleness import RENEWED_EVERY_S
from ackwright.errors import AckwrightError
from ackwright.planning.declared import declaration
from ackwright.settings import OperatorSettings
from ackwright_stream.reasons import Reason
from ackwright_stream.reports import Failure
from unit.world import RUNNING, SPEC, World

RESYNC_S = OperatorSettings().resync


class Decisions:
    """Counts the whole reconciles."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0

        def counted(*arguments: Any) -> Any:
            self.count += 1
            return declaration(*arguments)

        monkeypatch.setattr(reconcile, "declaration", counted)


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    return Decisions(monkeypatch)


@pytest.fixture
def world() -> World:
    """A steady pipeline, a moment after its last whole reconcile."""
    world = World()
    world.settle()
    world.settle()
    return world


def resync(world: World) -> None:
    """One reconcile at which Kafka is due to be read again."""
    world.seconds += RESYNC_S
    world.reconcile()


def test_kafka_is_read_at_each_resync_and_nothing_is_decided_again(world: World, decisions: Decisions) -> None:
    asked = world.kafka.asked
    for _ in range(5):
        resync(world)
    assert world.kafka.asked == asked + 5
    assert decisions.count == 0


def test_everything_is_decided_again_before_the_status_is_too_old(world: World, decisions: Decisions) -> None:
    before, start = world.resource["status"]["observedAt"], world.seconds
    while world.resource["status"]["observedAt"] == before and world.seconds - start <= RENEWED_EVERY_S + RESYNC_S:
        resync(world)
    assert world.resource["status"]["observedAt"] > before
    assert decisions.count == 1


def lose_a_broker(world: World) -> None:
    world.kafka.count = 2


def weaken_a_topic(world: World) -> None:
    world.kafka.existing["out"]["min.insync.replicas"] = "1"


def delete_a_topic(world: World) -> None:
    del world.kafka.existing["out"]


def change_a_topic_of_the_brokers(world: World) -> None:
    world.kafka.existing["__transaction_state"] = {"min.insync.replicas": "1"}
    world.kafka.shape("__transaction_state", 1, 1)


def silence_the_brokers(world: World) -> None:
    world.kafka.down = AckwrightError(Reason.BROKERS_UNREACHABLE, "connecting to k:9092 failed; check the network")


def change_the_secret(world: World) -> None:
    world.connections.secrets = "second"


def fail_a_batch(world: World) -> None:
    world.progress = replace(RUNNING, failing=True, last_error=Failure(Reason.BATCH_FAILED, "x"))


def lack_executors(world: World) -> None:
    world.progress = replace(RUNNING, executors_missing_s=1.0)


def declare_a_topic_differently(world: World) -> None:
    older = {
        **world.resource,
        "metadata": {**world.resource["metadata"], "name": "older", "uid": "o"},
        "spec": SPEC | {"topics": [{"name": "in", "partitions": 7}], "source": {"topics": ["in"], "groupId": "ops.o"}},
        "status": {},
    }
    world.index.update(("ops", "p"), world.resource)
    world.index.update(("ops", "older"), older)


def edit(world: World) -> None:
    world.kubernetes.declare("p", SPEC | {"trigger": {"interval": "7s"}})


@pytest.mark.parametrize(
    "change",
    [
        lose_a_broker,
        weaken_a_topic,
        delete_a_topic,
        change_a_topic_of_the_brokers,
        silence_the_brokers,
        change_the_secret,
        fail_a_batch,
        lack_executors,
        declare_a_topic_differently,
        edit,
    ],
)
def test_whatever_changes_is_decided_at_the_next_resync(
    world: World, decisions: Decisions, change: Callable[[World], None]
) -> None:
    change(world)
    resync(world)
    assert decisions.count == 1


@pytest.mark.parametrize(
    "spec", [SPEC | {"trigger": {"availableNow": True}}, SPEC | {"trigger": {"schedule": "0 * * * *"}}], ids=str
)
def test_a_bounded_run_is_decided_at_each_resync(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Times decide about it: its schedule, and when its completed run is deleted."""
    world = World(spec)
    world.settle()
    decisions = Decisions(monkeypatch)
    resync(world)
    assert decisions.count == 1
