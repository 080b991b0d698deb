"""Measures the parts of a driver's start, from the launch of its process to its first delivered batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from ackwright_stream.reports import StartPart

_LAST = list(StartPart)[-1]
log = logging.getLogger(__name__)


class StartTimes:
    """The seconds of each part. Each part begins where the one before it ends, and is measured once.

    launched: when the process started, by the clock.
    """

    def __init__(self, launched: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._launched = self._previous = launched
        self._clock = clock  # seconds
        self._seconds: dict[StartPart, float] = {}
        self._complete = False

    @property
    def seconds(self) -> Mapping[StartPart, float]:
        """The parts that have ended, in their order."""
        return dict(self._seconds)

    def ended(self, part: StartPart, at: float | None = None) -> None:
        """Notes that a part ended, now or at another time of the clock. Repeated calls for a part change nothing."""
        if self._complete or part in self._seconds:
            return
        now = self._clock() if at is None else at
        self._seconds[part], self._previous = max(0.0, now - self._previous), now
        if part is _LAST:
            self._complete = True
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self._seconds.items())
            log.info("the first batch was delivered %.1f s after the launch (%s)", now - self._launched, parts)

    def interrupt(self) -> None:
        """Measures no further part: this driver waits for another one, which says nothing of a start."""
        self._complete = True
