"""Dead letters in a topic beside a sink outside Kafka, on librdkafka's mock brokers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from ackwright.planning.guarantees import DEAD_LETTER_PRODUCER, values
from ackwright_stream.dead_letters import of_text
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import VARIABLE
from ackwright_stream.jobspec import DeadLetterTopic, JobSpec, Reason
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.letter_topic import LetterTopic
from minimal_job import minimal_job
from unit.stream.mock_brokers import MockBrokers

PRODUCE = 0  # the request's number
TOO_LARGE = 10  # MESSAGE_TOO_LARGE
LANE = Lane("in", 3)


@pytest.fixture(scope="module")
def brokers() -> MockBrokers:
    return MockBrokers()


def letters(*offsets: int) -> pa.RecordBatch:
    return of_text(json.dumps({"topic": "in", "partition": 3, "offset": n, "reason": "why"}) for n in offsets)


def job(brokers: MockBrokers) -> JobSpec:
    return minimal_job(group="ops.orders", bootstrap=brokers.servers, operation_timeout_ms=20_000)


def opened(brokers: MockBrokers, name: str, **producer: str) -> LetterTopic:
    return LetterTopic(job(brokers), DeadLetterTopic(brokers.topic(name), {**values(DEAD_LETTER_PRODUCER), **producer}))


def test_what_is_written_again_has_the_same_key(brokers: MockBrokers) -> None:
    topic = opened(brokers, "again")
    topic.write_all([letters(1, 2), letters(3)], [LANE])
    another_attempt = opened(brokers, "again")
    another_attempt.write_all([letters(1, 2, 3)], [LANE])
    assert sorted(brokers.keys("again")) == [b"ops.orders/in-3@%d" % n for n in (1, 1, 2, 2, 3, 3)]


def test_a_refused_dead_letter_fails_the_task_before_it_continues(brokers: MockBrokers, tmp_path: Path) -> None:
    topic = opened(brokers, "refused")
    brokers.refuse(PRODUCE, TOO_LARGE)
    with pytest.raises(JobError) as caught:
        topic.write_all([letters(1)], [LANE])
    assert "writing dead letters to refused" in caught.value.message
    topic.write(letters(1))  # by another producer: the queue of the first one is gone
    assert brokers.keys("refused") == [b"ops.orders/in-3@1"]


def test_the_task_passes_its_fault_point_when_they_are_durable(
    brokers: MockBrokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    (tmp_path / f"letters-written@{LANE}").write_text("nothing")
    topic = opened(brokers, "point")
    topic.write_all([], [LANE])
    assert not (tmp_path / f"letters-written@{LANE}.hit").exists(), "a claim writes none"
    topic.write_all([letters(7)], [LANE])
    assert (tmp_path / f"letters-written@{LANE}.hit").exists()


def test_a_pipeline_without_dead_letters_has_no_topic(brokers: MockBrokers) -> None:
    topic = LetterTopic(replace(job(brokers)), None)
    assert topic.topics == ()
    topic.write_all([], [LANE])
    with pytest.raises(JobError) as caught:
        topic.write(letters(1))
    assert caught.value.reason is Reason.UNEXPECTED
