"""Offsets on their way into a transaction, with a deadline of our own.

librdkafka 2.16 may ignore the timeout of rd_kafka_send_offsets_to_transaction() while it has no connection to the
group's coordinator, and then never returns (https://github.com/confluentinc/librdkafka/issues/5456).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer, TopicPartition

_GRACE_S = 2.0  # mostly enough for librdkafka's own timeout, whose error names the cause


class SentOffsets:
    """The offsets are sent in the background.

    timeout: seconds. A call that has not returned by then keeps its thread and the producer. What it still sends has an
    epoch that the next init fences; the caller drops the producer, as after any error.
    """

    def __init__(self, producer: Producer, offsets: Sequence[TopicPartition], group: Any, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout + _GRACE_S
        self._answer: Future[None] = Future()

        def send() -> None:
            try:
                producer.send_offsets_to_transaction(list(offsets), group, timeout)
            except Exception as e:
                self._answer.set_exception(e.with_traceback(None))  # which has this frame, and so the producer
            else:
                self._answer.set_result(None)

        threading.Thread(target=send, name="offsets", daemon=True).start()

    def failure(self) -> BaseException | None:
        """Waits until the coordinator has accepted the offsets; returns why it has not."""
        try:
            return self._answer.exception(max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            error: BaseException = KafkaException(
                KafkaError(KafkaError._TIMED_OUT, "the coordinator of the transaction or of the group has not answered")
            )
            return error

    def wait(self) -> None:
        """As failure(), which it raises."""
        failure = self.failure()
        try:
            if failure:
                raise failure
        finally:
            del failure  # a cycle with its traceback would keep the callers' variables
