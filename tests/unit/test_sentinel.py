"""The sentinel: an operator that does not see its own writes any more is unhealthy; one whose API server is away is
not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.sentinel import NAME, Sentinel


class Lease:
    """An API server with one Lease, a clock, and a watch that reports writes while it is set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.written: list[dict[str, Any]] = []
        self.error: ApiError | None = None
        self.watch: Callable[[dict[str, Any]], None] | None = None
        self.sentinel = Sentinel(cast(Kubernetes, self), "ackwright", clock=lambda: self.now)

    def apply(self, desired: dict[str, Any]) -> dict[str, Any]:
        if self.error:
            raise self.error
        self.written.append(desired)
        if self.watch:
            self.watch(desired)
        return desired

    def beats(self, seconds: float, every: float = 15) -> None:
        until = self.now + seconds
        while self.now < until:
            self.sentinel.beat()
            self.now += every


@pytest.fixture
def lease() -> Lease:
    return Lease()


def test_what_is_written_is_a_lease_of_our_own(lease: Lease) -> None:
    lease.sentinel.beat()
    (written,) = lease.written
    assert (written["apiVersion"], written["kind"]) == ("coordination.k8s.io/v1", "Lease")
    assert written["metadata"] == {"name": NAME, "namespace": "ackwright"}


def test_healthy_while_the_watch_lives(lease: Lease) -> None:
    assert lease.sentinel.healthy(), "before the first beat"
    lease.watch = lease.sentinel.update  # it may be faster than the answer
    lease.beats(3600)
    assert lease.sentinel.healthy()


def test_unhealthy_a_minute_after_the_watch_has_died(lease: Lease) -> None:
    lease.beats(45)
    assert lease.sentinel.healthy()
    lease.beats(30)
    assert not lease.sentinel.healthy()


def test_healthy_again_when_the_watch_comes_back(lease: Lease) -> None:
    lease.beats(90)
    lease.sentinel.update(lease.written[-1])
    assert lease.sentinel.healthy()


def test_what_was_written_before_or_by_others_says_nothing(lease: Lease) -> None:
    earlier = {"metadata": {"name": NAME}, "spec": {"renewTime": "2020-01-01T00:00:00.000000Z"}}
    lease.beats(90)
    for other in (earlier, {"metadata": {"name": NAME}}, lease.written[-1] | {"metadata": {"name": "another"}}):
        lease.sentinel.update(other)
        assert not lease.sentinel.healthy()


def test_an_api_server_that_is_away_says_nothing_of_the_watch(lease: Lease) -> None:
    lease.watch = lease.sentinel.update
    lease.beats(30)
    lease.error = ApiError(None, "no answer")
    lease.beats(600)
    assert lease.sentinel.healthy()


def test_a_dead_watch_is_noticed_although_some_beats_fail(lease: Lease) -> None:
    for i in range(6):
        lease.error = ApiError(503, "busy") if i % 2 else None
        lease.beats(15)
    assert not lease.sentinel.healthy()
