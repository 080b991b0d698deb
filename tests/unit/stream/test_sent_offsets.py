"""Offsets of a transaction, sent by a stub of a producer."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackwright_stream.sinks.kafka import sent_offsets
from ackwright_stream.sinks.kafka.sent_offsets import SentOffsets


class Stub:
    """Answers when `answers` is set, with `error` if there is one."""

    def __init__(self, error: KafkaException | None = None) -> None:
        self.answers, self._error = threading.Event(), error

    def send_offsets_to_transaction(self, *_: Any) -> None:
        assert self.answers.wait(30)
        if self._error:
            raise self._error


def sent(producer: Any, timeout: float = 30) -> SentOffsets:
    return SentOffsets(producer, [], b"group", timeout)


def test_accepted_offsets_have_no_failure() -> None:
    producer = Stub()
    offsets = sent(producer)
    producer.answers.set()
    assert offsets.failure() is None
    offsets.wait()


def test_the_coordinators_error_is_the_failure() -> None:
    error = KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION))
    producer = Stub(error)
    producer.answers.set()
    offsets = sent(producer)
    assert offsets.failure() is error
    with pytest.raises(KafkaException) as raised:
        offsets.wait()
    assert raised.value is error


def test_a_call_that_ignores_its_timeout_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_offsets, "_GRACE_S", 0.0)
    producer = Stub()
    offsets = sent(producer, timeout=0.01)
    failure = offsets.failure()
    assert isinstance(failure, KafkaException)
    assert failure.args[0].code() == KafkaError._TIMED_OUT
    assert not producer.answers.is_set()
    producer.answers.set()
