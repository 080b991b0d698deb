"""Checks that the operator still receives events: the watch must report what the election reads and writes.

An operator whose watch has died silently seems healthy and does nothing (kopf's issues 1145 and 1276). This one fails
its liveness probe and is restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from ackwright import lease as leases
from ackwright.lease import Lease

_BLIND_S = 60.0  # without the event of a renewal for this long, the operator is unhealthy


class Sentinel:
    """Call expect() with each Lease that the election has read or written, and update() with each that the watch
    reports. Each may be called by another thread.
    """

    def __init__(self, lease: str, clock: Callable[[], float] = time.monotonic) -> None:
        """lease: the name of the Lease."""
        self._lease, self._clock = lease, clock
        self._reported = (-1, "")
        # A renewal without its event yet, and when it was noticed.
        self._awaited: tuple[tuple[int, str], float] | None = None

    def expect(self, lease: Lease) -> None:
        """Takes a Lease as the API server has it. Without a call nothing is expected: an API server that does not
        answer says nothing about the watch.
        """
        if self._awaited is None and _order(lease) > self._reported:
            self._awaited = _order(lease), self._clock()

    def update(self, lease: Mapping[str, Any]) -> None:
        """Takes a Lease that the watch reports."""
        if lease["metadata"]["name"] != self._lease:
            return
        self._reported = _order(leases.parse(lease))
        awaited = self._awaited
        if awaited and self._reported >= awaited[0]:
            self._awaited = None

    def healthy(self) -> bool:
        """Whether the watch reports renewals in time."""
        awaited = self._awaited
        return awaited is None or self._clock() - awaited[1] < _BLIND_S


def _order(lease: Lease) -> tuple[int, str]:
    """Grows with each renewal. The times of two holders, whose clocks may differ, are not compared."""
    return lease.transitions, lease.renewed
