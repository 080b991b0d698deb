"""Waiting for a condition with a deadline, for code that drives real brokers and jobs; nothing here sleeps for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason


def wait_for(condition: Callable[[], bool], what: str, timeout: float) -> None:
    """Polls until the condition holds; errors of Kafka count as "not yet". Raises AckwrightError after timeout (seconds)."""
    deadline = time.monotonic() + timeout
    last: KafkaException | None = None
    while True:
        try:
            if condition():
                return
        except KafkaException as e:
            last = e
        if time.monotonic() > deadline:
            why = f": {last}" if last else ""
            raise AckwrightError(Reason.BROKERS_UNREACHABLE, f"waited {timeout:g} s in vain until {what}{why}")
        time.sleep(0.05)
