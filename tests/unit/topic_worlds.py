"""Worlds whose topics differ from the spec, for the tests of the reconciler."""

from __future__ import annotations

from typing import Any

from unit.world import SPEC, World


def declared(**more: Any) -> dict[str, Any]:
    return SPEC | {"topics": [{"name": "in", "partitions": 2, **more}, {"name": "out", "partitions": 2}]}


def weak() -> World:
    """A pipeline whose source exists, with too few replicas."""
    world = World()
    world.kafka.existing["in"] = {"min.insync.replicas": "1"}
    world.kafka.shape("in", 2, 1)
    return world


def to_the_end(world: World) -> World:
    """Until all moves have ended and nothing is left to do."""
    for _ in range(3):
        world.settle()
        world.kafka.arrive()
    return world.settle()


def throttles(world: World) -> list[str]:
    """Brokers and topics that are still throttled."""
    brokers = [broker for broker, settings in world.kafka.brokers_settings.items() if settings]
    return brokers + [
        name for name, settings in world.kafka.existing.items() if any("throttled" in s for s in settings)
    ]


def delete(world: World) -> World:
    """A user deletes the pipeline."""
    moment = world.kubernetes.stored["DeliveryPipeline", "p"]["metadata"]
    moment["deletionTimestamp"] = world.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    world.kubernetes.run()
    return world


def is_gone(world: World, reconciles: int = 5) -> bool:
    """Whether a deleted pipeline is gone after so many reconciles."""
    for _ in range(reconciles):
        if ("DeliveryPipeline", "p") in world.kubernetes.stored:
            world.reconcile()
    return ("DeliveryPipeline", "p") not in world.kubernetes.stored
