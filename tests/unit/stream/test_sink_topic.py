"""A topic that one broker knows and another does not know yet exists; a topic that no broker knows does not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, Producer

from ackwright_stream.errors import JobError
from ackwright_stream.sinks import topic
from ackwright_stream.sinks.topic import require_writable


def producer(*answers: int | None) -> Any:
    """A producer that gets these answers, the last one repeatedly; None: the topic exists."""
    left = list(answers)

    def list_topics(name: str, timeout: float) -> Any:
        code = left.pop(0) if len(left) > 1 else left[0]
        return SimpleNamespace(topics={name: SimpleNamespace(error=None if code is None else KafkaError(code))})

    return cast(Producer, SimpleNamespace(list_topics=list_topics))


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    require_writable(producer(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_OR_PART, None), "new", 1)


def test_a_topic_that_stays_unknown_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic, "_NEW_S", 0.3)
    with pytest.raises(JobError, match="topic 'nowhere' cannot be written"):
        require_writable(producer(KafkaError.UNKNOWN_TOPIC_OR_PART), "nowhere", 1)


def test_a_topic_that_may_not_be_written_is_not_waited_for() -> None:
    with pytest.raises(JobError, match="grant the job's principal Write"):
        require_writable(producer(KafkaError.TOPIC_AUTHORIZATION_FAILED, None), "theirs", 1)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250])
def test_a_name_that_no_topic_can_have(name: str) -> None:
    with pytest.raises(JobError, match="cannot be the name of a topic"):
        require_writable(producer(None), name, 1)
