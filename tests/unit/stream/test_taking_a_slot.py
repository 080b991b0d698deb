"""An init that meets its transactional.id's last transaction is asked again by a fresh handle, not after 500 ms."""

from __future__ import annotations

import gc
import threading
import time
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import transactions
from ackwright_stream.sinks.kafka.handles import Handles
from ackwright_stream.sinks.kafka.transactions import SlotTransactions
from minimal_job import minimal_job

JOB = minimal_job(topics=("flights",), operation_timeout_ms=200)


class Handle:
    """Answers init with these errors, one after the other, then with success."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.inits = 0

    def init_transactions(self, timeout: float) -> None:
        self.inits += 1
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0) if len(self.errors) > 1 else self.errors[0]))


class Answers(Handle):
    """Errors once each."""

    def init_transactions(self, timeout: float) -> None:
        self.inits += 1
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))


def taking(*handles: Handle) -> tuple[SlotTransactions, list[Handle]]:
    unused = list(handles)
    subject = SlotTransactions(JOB)
    subject._handles = Handles(lambda name: unused.pop(0), lambda handle: None)  # type: ignore[arg-type,return-value]
    return subject, unused


def test_a_completing_transaction_is_met_by_a_fresh_handle() -> None:
    first, second = Answers(KafkaError.CONCURRENT_TRANSACTIONS), Answers()
    subject, _ = taking(first, second)
    producer: Any = subject.initialised("ops.flights/slots/0")
    assert producer is second
    assert (first.inits, second.inits) == (1, 1)


def test_an_init_without_an_answer_stays_with_its_handle() -> None:
    # Its request may be on its way: a second handle could be fenced by it.
    only, spare = Answers(KafkaError._TIMED_OUT, KafkaError._TIMED_OUT), Answers()
    subject, unused = taking(only, spare)
    producer: Any = subject.initialised("ops.flights/slots/0")
    assert producer is only
    assert only.inits == 3
    assert unused == [spare]


def test_it_ends_with_the_cause_when_the_time_is_over() -> None:
    subject, _ = taking(Handle(KafkaError._TIMED_OUT))
    with pytest.raises(JobError) as caught:
        subject.initialised("ops.flights/slots/0")
    assert caught.value.reason is Reason.BROKERS_UNREACHABLE


def test_another_error_is_not_asked_again() -> None:
    only = Handle(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    subject, _ = taking(only)
    with pytest.raises(JobError) as caught:
        subject.initialised("ops.flights/slots/0")
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert only.inits == 1


def test_the_patience_is_shorter_than_librdkafkas_wait() -> None:
    assert transactions._PATIENCE_S < 0.5


def test_a_transaction_that_does_not_complete_costs_few_handles() -> None:
    """Its markers wait for a partition without a leader: brokers in trouble must not get a storm of connections."""
    subject, _ = taking()
    created: list[Handle] = []

    def make(name: str) -> Handle:
        created.append(Handle(KafkaError.CONCURRENT_TRANSACTIONS))
        return created[-1]

    subject._handles = Handles(make, lambda handle: None)  # type: ignore[arg-type]
    with pytest.raises(JobError):
        subject.initialised("ops.flights/slots/0")
    assert 2 < len(created) < 12


def test_the_pauses_between_handles_grow_to_a_limit() -> None:
    pauses = list(islice(transactions.pauses_between_handles(), 9))
    assert pauses[0] == 0
    assert pauses == sorted(pauses)
    assert pauses[-1] == pauses[-2] < 0.5


def test_the_handle_that_is_replaced_is_gone_before_the_pause_and_not_by_this_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """librdkafka would repeat its init after 500 ms, and its end waits for librdkafka's threads."""
    ended_in: list[int] = []
    gone = threading.Event()

    class Ending(Answers):
        def __del__(self) -> None:
            ended_in.append(threading.get_ident())
            gone.set()

    subject, unused = taking(Ending(KafkaError.CONCURRENT_TRANSACTIONS), Answers())
    pauses: list[bool] = []
    monkeypatch.setattr(time, "sleep", lambda _: pauses.append(gone.wait(10)))
    subject.initialised("ops.flights/slots/0")
    assert (pauses, unused) == ([True], [])
    assert threading.get_ident() not in ended_in


class Failing(Answers):
    """A producer whose call fails with an error of this code."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__()
        self.gone = threading.Event()
        self._call, self._code = call, code

    def __del__(self) -> None:
        self.gone.set()

    def _may_fail(self, call: str) -> None:
        if call == self._call:
            raise KafkaException(KafkaError(self._code))

    def begin_transaction(self) -> None:
        pass

    def send_offsets_to_transaction(self, *_: Any) -> None:
        self._may_fail("offsets")

    def produce(self) -> int:
        self._may_fail("rows")
        return 1

    def commit_transaction(self, timeout: float) -> None:
        self._may_fail("commit")


@pytest.mark.parametrize("offsets_first", [True, False])
@pytest.mark.parametrize("call", ["offsets", "rows", "commit"])
def test_a_producer_whose_transaction_failed_is_destroyed_without_a_garbage_collection(
    call: str, *, offsets_first: bool
) -> None:
    """It has threads, and a queue of rows, of which Python's collector does not know."""
    subject, _ = taking()
    producer: Any = Failing(call, KafkaError.REQUEST_TIMED_OUT)
    gone = producer.gone
    gc.disable()
    try:
        with suppress(JobError, KafkaException):
            subject.commit(producer, [], b"group", lambda p: int(p.produce()), offsets_first=offsets_first)
        del producer
        assert gone.wait(10)
    finally:
        gc.enable()
