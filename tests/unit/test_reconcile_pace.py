"""How often an operator of many pipelines asks drivers and brokers: at most so often, for all of them together."""

from __future__ import annotations

import pytest

from ackwright.memory import Memory
from unit.world import World


def with_pipelines(number: int) -> World:
    """An operator that reconciles so many pipelines, of which only p is steady."""
    world = World().settle()
    for i in range(number - 1):
        world.operator._memory[f"other-{i}"] = Memory()
    return world


@pytest.mark.parametrize(("number", "progress", "everything"), [(1, 10, 30), (720, 36, 60), (10_000, 200, 200)])
def test_the_more_pipelines_there_are_the_less_often_each_is_read(
    number: int, progress: float, everything: float
) -> None:
    world = with_pipelines(number)
    world.seconds += 1_000  # the next reconcile reads everything
    assert world.reconcile_alone() == progress
    reads = world.kafka.calls.total()
    world.seconds += everything - 1
    assert world.reconcile_alone() == progress
    assert world.kafka.calls.total() == reads, "the driver alone is asked"
    world.seconds += 2
    world.reconcile_alone()
    assert world.kafka.calls.total() > reads, "the control: at last everything is read"
