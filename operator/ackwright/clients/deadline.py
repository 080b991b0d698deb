"""One deadline for all calls to Kafka that a thread makes for one purpose, whatever each of them may take.

Without it a cluster that answers each call just in time would hold a worker for as long as there are calls to make.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason

_deadline: ContextVar[tuple[float, float] | None] = ContextVar("deadline", default=None)  # when it is, and the seconds


@contextmanager
def limited(seconds: float, total: float | None = None) -> Iterator[None]:
    """Limits the calls that this thread makes inside of the context to so many seconds.

    total: the seconds that messages name, if some of them had passed before.
    """
    token = _deadline.set((time.monotonic() + seconds, seconds if total is None else total))
    try:
        yield
    finally:
        _deadline.reset(token)


def limit() -> tuple[float, float] | None:
    """The seconds that are left for the calls of this thread, and how many there were; None: they have no limit."""
    current = _deadline.get()
    return None if current is None else (current[0] - time.monotonic(), current[1])


def time_left(timeout: float, address: str) -> float:
    """The seconds that the next call to this address may take: `timeout`, or less.

    Raises AckwrightError (BrokersUnreachable) when the time is over.
    """
    current = limit()
    if current is None:
        return timeout
    left, total = current
    if left <= 0:
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE,
            f"{address} answers too slowly: all requests together may take {total:g} s",
            "check the load of the brokers and the network to them",
        )
    return min(timeout, left)
