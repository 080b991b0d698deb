"""Waits for conditions, never for fixed times."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaException

from ackwright_stream.kafka_errors import UNREACHABLE

T = TypeVar("T")

# Seconds, on machines that are three times slower on some days.
WAIT = 240.0  # a job is up in about 10 on an idle machine, and was after 115 on two cores with a load of 15
ANSWER = 120.0  # of one request to a server that runs


def wait_until(condition: Callable[[], T | None], what: str, timeout: float = WAIT, pause: float = 0.05) -> T:
    """Polls until the condition is true; returns its value. Times are in seconds.

    A condition that raises because brokers do not answer yet, for example while a coordinator loads, is not true yet.
    Raises AssertionError with `what` after the timeout.
    """
    deadline = time.monotonic() + timeout
    while True:
        unanswered = None
        try:
            if value := condition():
                return value
        except KafkaException as e:
            if e.args[0].code() not in UNREACHABLE:
                raise
            unanswered = e
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:.0f} s: {what}") from unanswered
        time.sleep(pause)
