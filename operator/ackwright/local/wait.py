"""Waits for a condition with a deadline, for code that drives real brokers and jobs."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason


def wait_for(
    condition: Callable[[], bool], what: str, timeout: float, reason: Reason = Reason.BROKERS_UNREACHABLE
) -> None:
    """Polls until the condition holds. Raises AckwrightError with the reason after timeout (seconds).

    what: the condition as a sentence, for the message. A KafkaException of the condition counts as "not yet".
    """
    deadline = time.monotonic() + timeout
    last: KafkaException | None = None
    while True:
        try:
            if condition():
                return
        except KafkaException as e:
            last = e
        if time.monotonic() > deadline:
            cause = f"; the last error was: {last}" if last else ""
            raise AckwrightError(reason, f"timed out after {timeout:g} s, waiting until {what}{cause}")
        time.sleep(0.05)
