"""The last decision of a stateful pipeline in Kafka, and whether it is of the source that the driver reads."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.kafka import compacted
from ackwright_stream.sinks.kafka.decisions import DecisionTopic
from ackwright_stream.sinks.kafka.markers import Markers
from minimal_job import minimal_job

JOB = minimal_job()
OWN, TEXT = JOB.group.encode(), "the decision"
A, B = "pIv-gZxMSVq5ZcDf1FEMbQ", "4L6g3nShT-eMCtK--X86sw"  # ids of clusters


class Message:
    """As confluent-kafka returns it: a record without headers has None."""

    def __init__(self, key: bytes, value: str | None, source: str | None = None) -> None:
        self._key, self._value, self._source = key, value, source

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes | None:
        return None if self._value is None else self._value.encode()

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self._source is None else [("source", self._source.encode())]


def last(monkeypatch: pytest.MonkeyPatch, messages: list[Message], prefix: str = "") -> str | None:
    """The last decision of the messages, for a driver whose markers have this prefix."""

    def read_to_end(job: Any, topic: str, apply: Callable[[Message], None], _: object) -> None:
        for message in messages:
            apply(message)

    monkeypatch.setattr(compacted, "read_to_end", read_to_end)
    sink: Any = SimpleNamespace(job=JOB, plain_writer=None, current_markers=lambda: Markers(prefix))
    return DecisionTopic(sink, "ackwright-decisions").last()


def test_the_last_decision_of_the_pipeline_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    others = Message(b"ops.others", "of another pipeline")
    assert last(monkeypatch, []) is None
    assert last(monkeypatch, [others]) is None
    assert last(monkeypatch, [Message(OWN, "before"), Message(OWN, TEXT), others]) == TEXT
    assert last(monkeypatch, [Message(OWN, TEXT), Message(OWN, None)]) is None


def test_a_decision_of_the_same_source_cluster_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert last(monkeypatch, [Message(OWN, "before", B), Message(OWN, TEXT, A)], f"ackwright.{A}.") == TEXT


def test_a_decision_of_another_source_cluster_is_of_lost_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fingerprint does not depend on positions, which a driver commits before it decides."""
    with pytest.raises(JobError, match=f"records of the Kafka cluster {A}, and .* is {B};") as caught:
        last(monkeypatch, [Message(OWN, TEXT, A)], f"ackwright.{B}.")
    assert (caught.value.reason, caught.value.fingerprint is not None) == (Reason.STATE_LOST, True)
    with pytest.raises(JobError) as later:
        last(monkeypatch, [Message(OWN, "another one", A)], f"ackwright.{B}.")
    assert later.value.fingerprint != caught.value.fingerprint
