"""Faults of the campaign take effect on real brokers: one that does nothing would prove nothing."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from chaos.faults import INTERNAL, move_leaders
from chaos.quotas import quota
from integration.support.pipelines import create_topics
from waiting import ANSWER, wait_until

BYTES = 3_000_000  # a quota allows what it allows in ten seconds at once


def throttled(bootstrap: str, topic: str) -> bool:
    """Whether a broker delays a new client that sends more than the quota allows."""
    events: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "throttle_cb": events.append, "linger.ms": 0})
    for _ in range(10):
        producer.produce(topic, bytes(BYTES // 10), partition=0)
        producer.flush(ANSWER)
        producer.poll(0)
        if events:  # whatever is sent after that waits for the quota
            return True
    return False


def test_a_quota_throttles_clients_until_it_is_removed(kafka: EmbeddedKafka) -> None:
    topic = f"quota-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap_servers, topic, partitions=1)
    assert not throttled(kafka.bootstrap_servers, topic)
    with quota(kafka.bootstrap_servers, 50_000):
        # Brokers learn late of a quota and of its removal, if the machine is busy.
        wait_until(lambda: throttled(kafka.bootstrap_servers, topic), "a client is delayed")
    wait_until(lambda: not throttled(kafka.bootstrap_servers, topic), "a client is not delayed any more")


def test_coordinators_move_to_other_brokers(kafka: EmbeddedKafka) -> None:
    group = f"moved-{uuid.uuid4().hex[:8]}"
    before = kafka.coordinator(group).node
    kafka.wait_until_in_sync(120)
    assert move_leaders(kafka.bootstrap_servers, INTERNAL) > 0
    # On a busy machine, brokers learn of the new leaders some time after the election.
    wait_until(lambda: kafka.coordinator(group).node != before, "the group's coordinator has moved")
    kafka.wait_until_in_sync(120)
