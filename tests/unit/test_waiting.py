"""Waits of the tests: a request that brokers do not answer yet is repeated."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from waiting import wait_until


def failing(times: int, code: int) -> Callable[[], str]:
    """A request that fails so often before it is answered."""
    codes = [code] * times

    def request() -> str:
        if codes:
            raise KafkaException(KafkaError(codes.pop()))
        return "answer"

    return request


@pytest.mark.parametrize(
    "code",
    [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR, KafkaError._TRANSPORT, KafkaError._TIMED_OUT],
)
def test_a_request_is_repeated_until_the_brokers_answer(code: int) -> None:
    assert wait_until(failing(2, code), "an answer", pause=0) == "answer"


def test_another_error_is_raised_at_once() -> None:
    with pytest.raises(KafkaException):
        wait_until(failing(1, KafkaError.NON_EMPTY_GROUP), "an answer", pause=0)


def test_after_the_timeout_the_last_error_is_the_cause() -> None:
    with pytest.raises(AssertionError, match="not within 0 s: an answer") as caught:
        wait_until(failing(10_000, KafkaError._TRANSPORT), "an answer", timeout=0)
    assert isinstance(caught.value.__cause__, KafkaException)
