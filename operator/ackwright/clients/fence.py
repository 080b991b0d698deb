"""The fence of a leader: no write to Kafka or Kubernetes begins, or takes longer, than its Lease allows.

A leader that is cut off from the API server, or suspended, learns too late that another one has taken over. So it
checks before each write how old its last renewal is, by its own clock. A process that is suspended between this check
and the request, and resumed after a takeover, still sends this one request: to objects that both leaders write from the
same spec, and to the status with the version that it has read, which the API server then refuses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

# The context of one write: seconds that it may take.
Writing = Callable[[], AbstractContextManager[float]]

_NEVER = float("-inf")


class Fenced(Exception):
    """This process does not lead, or has not renewed its Lease in time: it may not write."""


@contextmanager
def unfenced() -> Iterator[float]:
    """The context of a write of a program that is the only one to write, such as a command."""
    yield float("inf")


def clock() -> float:
    """Seconds of a clock that also counts while the machine sleeps, unlike time.monotonic()."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Fence:
    """Closed at first. Safe for threads."""

    def __init__(self, writable: float, ended: float, clock: Callable[[], float] = clock) -> None:
        """writable: seconds after a renewal in which writes may begin. ended: seconds after it when they have ended."""
        self._writable, self._ended, self._clock = writable, ended, clock
        self._renewed = _NEVER
        self._changed = threading.Condition()
        self._writes = 0

    def extend(self, renewed: float) -> None:
        """Opens the fence. renewed: by its clock, when the request was sent by which the Lease was renewed."""
        with self._changed:
            self._renewed = renewed

    def close(self) -> None:
        """Lets no further write begin."""
        with self._changed:
            self._renewed = _NEVER

    def is_open(self) -> bool:
        """Whether writes may begin."""
        return self._clock() < self._renewed + self._writable

    @contextmanager
    def write(self) -> Iterator[float]:
        """The context of one write: the seconds that it may take. Raises Fenced if it may not begin."""
        with self._changed:
            now = self._clock()
            if now >= self._renewed + self._writable:
                raise Fenced
            self._writes += 1
            seconds = self._renewed + self._ended - now
        try:
            yield seconds
        finally:
            with self._changed:
                self._writes -= 1
                self._changed.notify_all()

    def wait_for_writes(self) -> bool:
        """Waits until no write is under way. Returns whether that is so within the time that writes may take."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._writes, self._ended)
