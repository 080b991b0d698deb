"""Rows that are written outside of transactions: what becomes of those that brokers refuse."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from ackwright_stream.dead_letters import COLUMNS
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeadLetterTopic, Guarantee, JobSpec, KafkaSink, Reason
from ackwright_stream.sinks.kafka.plain_writer import PlainWriter
from ackwright_stream.sinks.kafka.sink import TopicSink
from minimal_job import kafka_sink
from unit.stream.mock_brokers import MockBrokers

PRODUCE = 0  # a request's number (Kafka's protocol, api keys)
ROWS = [pa.RecordBatch.from_pydict({"key": [b"a", b"b"], "value": [b"1", None]})]
PLACE = {"topic": "in", "partition": 0, "offset": 7, "reason": "is not JSON"}
PRODUCER = {"acks": "all", "enable.idempotence": "false", "retries": "0", "delivery.timeout.ms": "20000"}


@pytest.fixture
def brokers() -> MockBrokers:
    return MockBrokers()


def job(brokers: MockBrokers) -> JobSpec:
    """A job whose rows go to the topic `out`."""
    to_topic = brokers.job(kafka_sink(brokers.topic("out")))
    return replace(to_topic, guarantee=Guarantee.AT_LEAST_ONCE, producer=PRODUCER)


def with_letters(brokers: MockBrokers) -> PlainWriter:
    """The writer of a job whose dead letters go to the topic `bad`, which takes records of 1,000 bytes."""
    producer = {"acks": "all", "delivery.timeout.ms": "20000", "message.max.bytes": "1000"}
    to_topics = job(brokers)
    sink = replace(to_topics.sink_of(KafkaSink), dead_letters=DeadLetterTopic(brokers.topic("bad"), producer))
    return TopicSink(replace(to_topics, sink=sink)).plain_writer


def letter(value: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{**PLACE, "key": b"k", "value": value, "headers": None}], schema=COLUMNS)


def test_acknowledged_rows_are_there(brokers: MockBrokers) -> None:
    sink = TopicSink(job(brokers))
    assert sink.plain_writer.write(ROWS, acknowledged=True) == 2
    assert sorted(brokers.keys("out")) == [b"a", b"b"]
    assert sink.plain_writer.write([], acknowledged=True) == 0


@pytest.mark.parametrize("acknowledged", [True, False])
def test_dead_letters_are_in_their_topic(brokers: MockBrokers, acknowledged: bool) -> None:
    assert with_letters(brokers).write(ROWS, [letter(b"?")], acknowledged=acknowledged) == 2
    assert brokers.keys("bad") == [b"k"]
    assert sorted(brokers.keys("out")) == [b"a", b"b"]


def test_a_dead_letter_that_is_refused_precedes_the_rows_that_are_acknowledged(brokers: MockBrokers) -> None:
    """Else a driver would write the rows again with each attempt."""
    with pytest.raises(JobError, match=r"record in-0@7: its dead letter of \d+ bytes is too large") as caught:
        with_letters(brokers).write(ROWS, [letter(bytes(1000))], acknowledged=True)
    assert caught.value.reason is Reason.ROW_REFUSED
    assert brokers.keys("out") == []


@pytest.mark.parametrize(
    ("refusal", "reason"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, Reason.ROW_REFUSED),
        (KafkaError.INVALID_REQUIRED_ACKS, Reason.BATCH_FAILED),
    ],
)
def test_a_row_that_is_refused_is_an_error(brokers: MockBrokers, refusal: int, reason: Reason) -> None:
    writer = TopicSink(job(brokers)).plain_writer
    first = writer.producer()
    brokers.refuse(PRODUCE, refusal)
    with pytest.raises(JobError) as caught:
        writer.write(ROWS, acknowledged=True)
    assert caught.value.reason is reason
    assert writer.producer() is not first  # its queue may hold rows of this batch


def test_control_without_acknowledgements_the_refusal_is_not_noticed(brokers: MockBrokers) -> None:
    writer = TopicSink(job(brokers)).plain_writer
    brokers.refuse(PRODUCE, KafkaError.MSG_SIZE_TOO_LARGE)
    assert writer.write(ROWS) == 2
    assert len(brokers.keys("out")) == 1
