"""Rows that are written outside of transactions: what becomes of those that brokers refuse."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.sinks.kafka.sink import TopicSink
from minimal_job import kafka_sink
from unit.stream.mock_brokers import MockBrokers

PRODUCE = 0  # a request's number (Kafka's protocol, api keys)
ROWS = [pa.RecordBatch.from_pydict({"key": [b"a", b"b"], "value": [b"1", None]})]
PRODUCER = {"acks": "all", "enable.idempotence": "false", "retries": "0", "delivery.timeout.ms": "20000"}


@pytest.fixture
def brokers() -> MockBrokers:
    return MockBrokers()


def job(brokers: MockBrokers) -> JobSpec:
    """A job whose rows go to the topic `out`."""
    to_topic = brokers.job(kafka_sink(brokers.topic("out")))
    return replace(to_topic, guarantee=Guarantee.AT_LEAST_ONCE, producer=PRODUCER)


def test_acknowledged_rows_are_there(brokers: MockBrokers) -> None:
    sink = TopicSink(job(brokers))
    assert sink.plain_writer.write(ROWS, acknowledged=True) == 2
    assert sorted(brokers.keys("out")) == [b"a", b"b"]
    assert sink.plain_writer.write([], acknowledged=True) == 0


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
