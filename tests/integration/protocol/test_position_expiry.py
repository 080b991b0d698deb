"""Positions expire per partition; a group that ever had a classic member loses fresh ones, too.

It supports docs/protocol.md#rule-5 (heartbeats) and docs/protocol.md#rule-10 (members). The broker is the module's own,
with a retention of one minute, the shortest possible.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from integration.support.members import join
from waiting import wait_until

SECONDS = 30
RETENTION = 60  # seconds
MISSING = -1001
TOPIC = "expiry"
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "3000"}


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with EmbeddedKafka(tmp_path, brokers=1, overrides=SETTINGS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(SECONDS)
        yield kafka.bootstrap_servers


def consumer(servers: str, group: str) -> Consumer:
    base = {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    return Consumer(base)


def commit(servers: str, group: str, offset: int, partition: int) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": f"{group}/{partition}", "retry.backoff.ms": 5}
    )
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    of_group = consumer(servers, group).consumer_group_metadata()
    producer.send_offsets_to_transaction([TopicPartition(TOPIC, partition, offset)], of_group, SECONDS)
    producer.commit_transaction(SECONDS)


def position(servers: str, group: str, partition: int) -> int:
    return int(consumer(servers, group).committed([TopicPartition(TOPIC, partition)], timeout=SECONDS)[0].offset)


def join_once(servers: str, group: str) -> None:
    member = consumer(servers, group)
    join(member, TOPIC)
    member.close()


def test_rules_5_and_10_idle_lanes_expire_and_after_a_member_fresh_ones_too(servers: str) -> None:
    for group in ("had", "never"):
        for partition in (0, 1):
            commit(servers, group, 1, partition)
    begin, beats = time.monotonic(), 1  # joining may take long
    join_once(servers, "had")
    left = time.monotonic()
    heartbeats = {"never": 0.0, "had": 0.0}
    expired: dict[tuple[str, int], float] = {}

    def both_expired() -> bool:
        """Commits lane 0 of both groups every four seconds until lane 1 of one and lane 0 of the other expire."""
        nonlocal beats
        for group, partition in (("had", 0), ("never", 1)):
            if (group, partition) not in expired and position(servers, group, partition) == MISSING:
                expired[group, partition] = time.monotonic()
        if len(expired) < 2 and time.monotonic() - heartbeats["never"] > 4:
            beats += 1
            commit(servers, "never", beats, 0)
            heartbeats["never"] = time.monotonic()
            # No commit near the expiry: one right after it would create a group without members and hide the loss.
            if time.monotonic() - left < RETENTION * 0.75:
                commit(servers, "had", beats, 0)
                heartbeats["had"] = time.monotonic()
        return len(expired) == 2

    wait_until(both_expired, "the positions expire", RETENTION + 60)
    assert expired["never", 1] - begin >= RETENTION - 5  # an idle lane, beside one that is kept
    assert position(servers, "never", 0) == beats  # which is still there: a commit is what keeps a position
    # Committed not long before, and gone: the group's clock runs since the member left.
    assert expired["had", 0] - heartbeats["had"] < RETENTION / 2
