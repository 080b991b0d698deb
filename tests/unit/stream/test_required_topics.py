"""What a driver asks for first: that the topics are there."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from ackwright_stream.cluster import Cluster
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from minimal_job import kafka_sink
from unit.stream.mock_brokers import MockBrokers


@pytest.fixture
def brokers() -> MockBrokers:
    """With the topics `in` and `out`."""
    mock = MockBrokers()
    mock.topic("in")
    mock.topic("out")
    return mock


@pytest.fixture
def subject(brokers: MockBrokers) -> Cluster:
    return Cluster(brokers.job(kafka_sink("out")))


def test_topics_that_are_there_pass(subject: Cluster) -> None:
    subject.check(["out"])


def test_all_absent_topics_are_named(subject: Cluster) -> None:
    with pytest.raises(JobError, match=r"no such topic at .*: copy, archive; create") as caught:
        subject.check(["copy", "out", "archive"])
    assert caught.value.reason is Reason.TOPIC_MISSING


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Reason.TOPIC_MISSING),
        (KafkaError.LEADER_NOT_AVAILABLE, Reason.BROKERS_UNREACHABLE),  # brokers start; the topic is there
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Reason.AUTHORIZATION_FAILED),
    ],
)
def test_an_error_of_a_topic_has_the_reason_of_its_code(
    brokers: MockBrokers, subject: Cluster, code: int, reason: Reason
) -> None:
    brokers.refuse_topic("out", code)
    with pytest.raises(JobError, match="out") as caught:
        subject.check(["out"])
    assert caught.value.reason is reason
