"""Requests of the audit and of the job, while a group's coordinator or a partition's leader moves."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec

from ackwright_stream.audit_kafka import KafkaView
from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import require_reachable
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane
from minimal_job import kafka_sink
from unit.stream.mock_brokers import LIST_OFFSETS, OFFSET_FETCH, MockBrokers
from waiting import ANSWER

TOPIC, GROUP = "in", "ops.orders"
SECONDS = 20
_BY_ADMIN = f"""
import sys
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
asked = ConsumerGroupTopicPartitions({GROUP!r}, [TopicPartition({TOPIC!r}, 0)])
admin = AdminClient({{"bootstrap.servers": sys.argv[1]}})
admin.list_consumer_group_offsets([asked])[{GROUP!r}].result({SECONDS})
"""


@pytest.fixture
def brokers() -> MockBrokers:
    mock = MockBrokers()
    mock.topic(TOPIC)
    return mock


@pytest.fixture
def committed(brokers: MockBrokers) -> int:
    offset = 7
    consumer = Consumer({"bootstrap.servers": brokers.servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()
    return offset


def view(brokers: MockBrokers) -> KafkaView:
    return KafkaView(brokers.job(kafka_sink("out")))


def test_positions_are_read_from_wherever_the_coordinator_has_moved(brokers: MockBrokers, committed: int) -> None:
    moved = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
    brokers.refuse(OFFSET_FETCH, *moved, *moved)
    assert view(brokers).positions([(TOPIC, 0), (TOPIC, 1)]) == {(TOPIC, 0): committed, (TOPIC, 1): None}


@pytest.mark.parametrize("passing", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_ends_are_asked_for_again_while_a_partition_or_its_leader_is_not_known_yet(
    brokers: MockBrokers, passing: int
) -> None:
    """A topic was just created, or a broker has just died: the audit runs at such moments, and must not end there."""
    brokers.refuse(LIST_OFFSETS, *3 * [passing])
    assert view(brokers).written([(TOPIC, 0)]) == {(TOPIC, 0): 0}


def test_records_are_counted_between_two_offsets_of_each_lane(brokers: MockBrokers) -> None:
    producer = Producer({"bootstrap.servers": brokers.servers})
    for n in range(30):
        producer.produce(TOPIC, b"%d" % n, partition=n % 3)
    assert producer.flush(SECONDS) == 0
    lanes = [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)]
    until = dict(zip(lanes, (10, 7, 4), strict=True))
    counts = view(brokers).count(dict(zip(lanes, (0, 3, 4), strict=True)), until)
    assert counts == dict(zip(lanes, (10, 4, 0), strict=True))


def test_the_end_of_the_log_ends_the_count(brokers: MockBrokers) -> None:
    """Behind the last record there may be offsets without one, such as the end of a transaction."""
    producer = Producer({"bootstrap.servers": brokers.servers})
    producer.produce(TOPIC, b"one", partition=0)
    assert producer.flush(SECONDS) == 0
    assert view(brokers).count({(TOPIC, 0): 0}, {(TOPIC, 0): 9}) == {(TOPIC, 0): 1}


@pytest.mark.parametrize("passing", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_so_does_the_job(brokers: MockBrokers, passing: int) -> None:
    """Partitions that were just added: the broker that describes them knows them, and others do not."""
    brokers.refuse(LIST_OFFSETS, *3 * [passing])
    lane = Lane(TOPIC, 0)
    assert Cluster(brokers.job(kafka_sink("out")))._offsets([lane], OffsetSpec.latest()) == {lane: 0}


def test_a_permanent_error_is_raised_at_once(brokers: MockBrokers) -> None:
    brokers.refuse(LIST_OFFSETS, *2 * [KafkaError.TOPIC_AUTHORIZATION_FAILED])
    with pytest.raises(JobError, match=f"reading the offsets of {TOPIC} failed") as e:
        view(brokers).written([(TOPIC, 0)])
    assert e.value.reason is Reason.AUTHORIZATION_FAILED


def test_a_refused_login_is_distinguished_from_unreachable_brokers() -> None:
    def list_topics(**_: Any) -> Any:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    admin: Any = SimpleNamespace(
        list_topics=list_topics, poll=lambda _: errors.append(KafkaError(KafkaError._AUTHENTICATION))
    )
    errors: list[KafkaError] = []
    with pytest.raises(JobError) as e:
        require_reachable(admin, errors, "broker:9092", 20)
    assert e.value.reason is Reason.AUTHENTICATION_FAILED


def test_a_certificate_that_cannot_be_read_is_named(brokers: MockBrokers) -> None:
    job = brokers.job(kafka_sink("out"))
    tls = {"security.protocol": "SSL", "ssl.ca.location": "/nowhere/ca.crt"}
    for connect in (KafkaView, Cluster):
        with pytest.raises(JobError, match=r"cannot be set up.*check the CA certificate") as e:
            connect(replace(job, cluster=replace(job.cluster, librdkafka=tls)))
        assert e.value.reason is Reason.INVALID_SPEC


def test_the_admin_client_does_not_survive_it(brokers: MockBrokers, committed: int) -> None:
    """Why the audit does not use it; this test fails once librdkafka is fixed."""

    def ended() -> int:
        return subprocess.run(
            [sys.executable, "-c", _BY_ADMIN, brokers.servers], timeout=ANSWER, check=False
        ).returncode

    assert ended() == 0
    brokers.refuse(OFFSET_FETCH, KafkaError.NOT_COORDINATOR)
    assert ended() == -signal.SIGSEGV
