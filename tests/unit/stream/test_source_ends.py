"""The ends of all lanes, which a driver asks for every second."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer

from ackwright_stream.cluster import Cluster
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane
from minimal_job import kafka_sink
from unit.stream.mock_brokers import LIST_OFFSETS, MockBrokers

LANES = [Lane("in", partition) for partition in range(4)]


@pytest.fixture
def brokers() -> MockBrokers:
    """Partition n of the topic has n records."""
    mock = MockBrokers(3)
    producer = Producer({"bootstrap.servers": mock.servers, "log_level": 0})
    mock.topic("in")
    for lane in LANES:
        for _ in range(lane.partition):
            producer.produce("in", b"", partition=lane.partition)
    assert producer.flush(20) == 0
    return mock


@pytest.fixture
def subject(brokers: MockBrokers) -> Cluster:
    return Cluster(brokers.job(kafka_sink("out")))


def test_each_leader_gets_one_request(brokers: MockBrokers, subject: Cluster) -> None:
    brokers.listen()
    assert subject.ends(LANES) == {lane: lane.partition for lane in LANES}
    assert subject.ends([]) == {}
    requests = {broker: n for (kind, broker), n in brokers.asked().items() if kind == LIST_OFFSETS}
    assert set(requests.values()) == {1}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.NOT_LEADER_FOR_PARTITION, Reason.BROKERS_UNREACHABLE),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reason.AUTHORIZATION_FAILED),
    ],
)
def test_a_refusal_is_an_error_and_the_next_request_is_another(
    brokers: MockBrokers, subject: Cluster, code: int, reason: Reason
) -> None:
    subject.ends(LANES)
    brokers.refuse(LIST_OFFSETS, code)
    with pytest.raises(JobError) as caught:
        subject.ends(LANES)
    assert caught.value.reason is reason
    assert subject.ends(LANES) == {lane: lane.partition for lane in LANES}


def test_an_error_of_one_lane_is_an_error(subject: Cluster) -> None:
    with pytest.raises(JobError) as caught:
        subject.ends([*LANES, Lane("in", 4)])
    assert caught.value.reason is Reason.TOPIC_MISSING
