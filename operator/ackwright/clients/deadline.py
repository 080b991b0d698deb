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
def limited(seconds: float) -> Iterator[None]:
    """Limits the calls that this thread makes inside of the context to so many seconds in total."""
    token = _deadline.set((time.monotonic() + seconds, seconds))
    try:
        yield
    finally:
        _deadline.reset(token)


def time_left(timeout: float, address: str) -> float:
    """The seconds that the next call to this address may take: `timeout`, or less.

    Raises AckwrightError (BrokersUnreachable) when the time is over.
    """
    limit = _deadline.get()
    if limit is None:
        return timeout
    left = limit[0] - time.monotonic()
    if left <= 0:
        raise AckwrightError(
            Reason.BROKERS_UNREACHABLE,
            f"{address} answers too slowly: all requests together may take {limit[1]:g} s",
            "check the load of the brokers and the network to them",
        )
    return min(timeout, left)
