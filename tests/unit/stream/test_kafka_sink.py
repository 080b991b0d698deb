"""What Kafka's sink does for every guarantee, so that no guarantee knows Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from ackwright_stream.connection import translate
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks.kafka import columns, sink, spark_kafka
from minimal_job import minimal_job

LANE = Lane("in", 0)
JOB = minimal_job()
LIMIT_S = JOB.transaction_timeout_ms / 1000


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class FencedAfter:
    """Transactions whose commit takes a while and is then refused."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    def open(self, *_: Any) -> tuple[None, dict[Lane, Any]]:
        return None, {}

    def commit(self, *_: Any, **__: Any) -> int:
        self._clock.now += self._seconds
        error = KafkaError(KafkaError._FENCED)
        raise translate(error, "the transaction of in-0") from KafkaException(error)


def refusal(monkeypatch: pytest.MonkeyPatch, job: JobSpec, seconds: float, *, transactional: bool) -> Reason:
    """The reason of a commit that is fenced after so many seconds."""
    clock = Clock()
    monkeypatch.setattr(sink, "time", clock)
    transactions: Any = FencedAfter(clock, seconds)
    of_task = sink.for_tasks(job, transactional=transactional)
    transaction = sink.SlotTransaction(of_task, transactions, 0, [LANE], b"")
    positions: dict[Lane, Position] = {}
    with pytest.raises(JobError) as caught:
        transaction.commit(positions)
    assert isinstance(caught.value.__cause__, KafkaException)
    return caught.value.reason


def test_rows_that_take_too_long_are_a_time_out_of_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, JOB, LIMIT_S, transactional=True) is Reason.TRANSACTION_TIMED_OUT


def test_control_before_that_it_is_a_newer_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(monkeypatch, JOB, LIMIT_S - 0.1, transactional=True) is Reason.POSITION_CONFLICT


def test_a_claim_has_no_rows_that_a_smaller_batch_would_shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    job = minimal_job(Guarantee.AT_MOST_ONCE)
    assert refusal(monkeypatch, job, LIMIT_S, transactional=False) is Reason.POSITION_CONFLICT


def test_sparks_writer_refuses_topics_that_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever guarantee writes with it: brokers would create them with their default replication."""
    output, present, checked = object(), object(), object()
    monkeypatch.setattr(columns, "present_columns", lambda frame, of: present if frame is output else None)
    monkeypatch.setattr(
        spark_kafka, "require_existing_topics", lambda rows, job: checked if rows is present and job is JOB else None
    )
    writer: Any = sink.for_driver(JOB, None).spark_writer
    assert writer.columns(output) is checked
