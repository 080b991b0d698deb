"""A compacted topic that cannot be described is not one without records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import compacted
from minimal_job import minimal_job

TOPIC = "ackwright-decisions"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reason.AUTHORIZATION_FAILED),
        (KafkaError.LEADER_NOT_AVAILABLE, Reason.BROKERS_UNREACHABLE),
    ],
)
def test_an_error_of_the_topic_is_reported(monkeypatch: pytest.MonkeyPatch, code: int, reason: Reason) -> None:
    """Otherwise a driver without permission would halt, because it had lost its state."""

    class Consumer:
        def __init__(self, settings: dict[str, Any]) -> None:
            pass

        def list_topics(self, topic: str, timeout: float) -> Any:
            described = SimpleNamespace(error=KafkaError(code), partitions={})
            return SimpleNamespace(topics={topic: described})

        def close(self) -> None:
            pass

    monkeypatch.setattr(compacted, "Consumer", Consumer)
    with pytest.raises(JobError, match=TOPIC) as caught:
        compacted.read_to_end(minimal_job(), TOPIC, lambda message: None, lambda message: True)
    assert caught.value.reason is reason
