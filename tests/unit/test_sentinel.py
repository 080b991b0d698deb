"""The sentinel: an operator whose watch reports no renewals is unhealthy; one whose API server is away is not."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright import lease as leases
from ackwright.sentinel import Sentinel
from ackwright.shards import Shard

NAME = Shard().lease


def renewed(at: float, transitions: int = 0, name: str = NAME) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "resourceVersion": f"{transitions}-{at}"},
        "spec": {"renewTime": f"2026-11-25T12:00:{at:014.6f}Z", "leaseTransitions": transitions},
    }


class World:
    """A clock, and a watch that reports renewals while it lives."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watch = True
        self.sentinel = Sentinel(NAME, clock=lambda: self.now)

    def renew(self, seconds: float, *, watch: bool, every: float = 2.0) -> None:
        until = self.now + seconds
        while self.now < until:
            lease = renewed(self.now)
            self.sentinel.expect(leases.parse(lease))
            if watch:
                self.sentinel.update(lease)
            self.now += every


@pytest.fixture
def world() -> World:
    return World()


def test_healthy_while_the_watch_lives(world: World) -> None:
    assert world.sentinel.healthy(), "before the first renewal"
    world.renew(3600, watch=True)
    assert world.sentinel.healthy()


def test_healthy_although_the_watch_is_faster_than_the_answer(world: World) -> None:
    world.sentinel.update(renewed(7.0))
    world.sentinel.expect(leases.parse(renewed(7.0)))
    world.now = 600.0
    assert world.sentinel.healthy()


def test_unhealthy_a_minute_after_the_watch_has_died(world: World) -> None:
    world.renew(58, watch=False)
    assert world.sentinel.healthy()
    world.renew(4, watch=False)
    assert not world.sentinel.healthy()


def test_healthy_again_when_the_watch_comes_back(world: World) -> None:
    world.renew(90, watch=False)
    world.sentinel.update(renewed(world.now))
    assert world.sentinel.healthy()


def test_earlier_renewals_and_other_leases_say_nothing(world: World) -> None:
    world.now = 100.0
    world.renew(90, watch=False)
    for lease in (renewed(50.0), renewed(0.0), {"metadata": {"name": NAME}}, renewed(500.0, name="another")):
        world.sentinel.update(lease)
        assert not world.sentinel.healthy()


def test_times_of_two_holders_are_not_compared(world: World) -> None:
    """The clock of the second one is behind."""
    world.sentinel.expect(leases.parse(renewed(59.0, 3)))
    world.sentinel.update(renewed(1.0, 4))
    world.now = 600.0
    assert world.sentinel.healthy()


def test_an_api_server_that_is_away_says_nothing_of_the_watch(world: World) -> None:
    world.renew(30, watch=True)
    world.now += 3600
    assert world.sentinel.healthy()
