"""A prepared handle has asked all questions of a batch, and is connected to the brokers that it writes to."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeadLetterTopic, KafkaSink
from ackwright_stream.sinks.kafka.enqueue import enqueuer
from ackwright_stream.sinks.kafka.handles import Handle
from ackwright_stream.sinks.kafka.transactions import SlotTransactions
from minimal_job import kafka_sink
from unit.stream.mock_brokers import DISCONNECTED, LIST_OFFSETS, METADATA, MockBrokers

TOPIC = "out"
SINK = kafka_sink(TOPIC)
ROWS = pa.record_batch({"value": [b"a", b"b"]})


@pytest.fixture
def brokers() -> MockBrokers:
    mock = MockBrokers(3)
    mock.topic(TOPIC)
    return mock


def warmed(brokers: MockBrokers, sink: KafkaSink = SINK) -> Handle:
    handle = Handle({"bootstrap.servers": brokers.servers, "log_level": 0})
    job = brokers.job(sink)
    SlotTransactions(job, job.producer)._warm(handle)
    return handle


def asked(brokers: MockBrokers, request: int) -> set[int]:
    """The brokers that got such a request."""
    return {broker for (kind, broker) in brokers.asked() if kind == request}


@pytest.mark.parametrize("preserve_partition", [False, True])
def test_it_is_connected_to_every_leader(brokers: MockBrokers, preserve_partition: bool) -> None:
    """Also where records keep their partitions: a slot's next task may have any lanes."""
    brokers.listen()
    handle = warmed(brokers, kafka_sink(TOPIC, preserve_partition=preserve_partition))
    assert handle.writable == {TOPIC}
    leaders = {p.leader for p in handle.list_topics(TOPIC, 20).topics[TOPIC].partitions.values()}
    assert leaders
    assert asked(brokers, LIST_OFFSETS) == leaders


def test_rows_need_no_more_questions(brokers: MockBrokers) -> None:
    handle = warmed(brokers)
    plain = Producer({"bootstrap.servers": brokers.servers, "log_level": 0})
    plain.list_topics(timeout=20)
    brokers.refuse(
        METADATA, *[DISCONNECTED] * 1000
    )  # refused, not counted: librdkafka asks for its own reasons too, whenever it connects
    assert enqueuer(handle, TOPIC)(ROWS) == 2
    assert handle.flush(20) == 0
    with pytest.raises(JobError, match="no broker answered"):
        enqueuer(plain, TOPIC)(ROWS)  # the control: a handle that was not prepared


def test_the_dead_letter_topic_is_known_too(brokers: MockBrokers) -> None:
    """Otherwise a task's first dead letter would wait behind its rows, which the same broker gets before."""
    brokers.topic("letters")
    letters = DeadLetterTopic("letters", {})
    assert warmed(brokers, replace(SINK, dead_letters=letters)).writable == {TOPIC, "letters"}
    missing = DeadLetterTopic("a name that no topic has", {})
    assert warmed(brokers, replace(SINK, dead_letters=missing)).writable == {TOPIC}


def test_a_missing_topic_is_left_to_the_task_that_writes(brokers: MockBrokers) -> None:
    assert warmed(brokers, kafka_sink("a name that no topic has")).writable == frozenset()


def test_a_producer_that_writes_no_rows_asks_no_leader(brokers: MockBrokers) -> None:
    """A claim of at-most-once moves positions alone."""
    handle = Handle({"bootstrap.servers": brokers.servers, "log_level": 0})
    SlotTransactions(brokers.job(SINK))._warm(handle)
    assert asked(brokers, LIST_OFFSETS) == set()
