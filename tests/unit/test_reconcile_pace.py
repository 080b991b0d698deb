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


@pytest.mark.parametrize(("number", "progress", "everything"), [(1, 10, 30), (1_000, 20, 30), (10_000, 200, 200)])
def test_all_pipelines_together_are_read_fifty_times_a_second_at_most(
    number: int, progress: int, everything: int
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
