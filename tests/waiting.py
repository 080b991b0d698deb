"""Waits for conditions, never for fixed times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WAIT = 240.0  # seconds; a job is up in about 10 on an idle machine, and was after 115 on two cores with a load of 15


def wait_until(condition: Callable[[], T | None], what: str, timeout: float = WAIT, pause: float = 0.05) -> T:
    """Polls until the condition is true; returns its value. Times are in seconds.

    Raises AssertionError with `what` after the timeout.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}")
        time.sleep(pause)
