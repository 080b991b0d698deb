"""Real brokers for the integration tests: one cluster for the whole session, and one per module for tests that break brokers."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping

import pytest
from confluent_kafka.admin import NewTopic

from ackwright.local.kafka import EmbeddedKafka, wait_for
from ackwright.local.spark_start import BRIEF
from ackwright_stream.admin_client import AdminClient

os.environ.setdefault(
    "JDK_JAVA_OPTIONS", BRIEF
)  # for the jobs that tests start, most of which live for less than a minute

NewTopicName = Callable[..., str]


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers that all tests share. Never break them: that is what fragile_kafka is for."""
    with EmbeddedKafka() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fragile_kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers of the module's own, to be killed, suspended and restarted. A test leaves them all running and in sync."""
    with EmbeddedKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture
def topic(admin: AdminClient) -> NewTopicName:
    """topic(partitions=1, replicas=3, config=None, name="t") creates a topic under a name that nobody else has, and returns the name."""
    return lambda **wanted: create_topic(admin, **wanted)


def create_topic(
    admin: AdminClient,
    *,
    partitions: int = 1,
    replicas: int = 3,
    config: Mapping[str, str] | None = None,
    name: str = "t",
) -> str:
    """Creates a topic under a unique name, and returns the name once every partition has all its replicas in sync."""
    unique = f"{name}-{uuid.uuid4().hex[:10]}"
    new = NewTopic(unique, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=30)[unique].result(30)

    def in_sync() -> bool:
        found = admin.list_topics(unique, timeout=5).topics[unique].partitions
        return len(found) == partitions and all(len(p.isrs) == replicas for p in found.values())

    wait_for(in_sync, f"{unique} is in sync", 30)
    return unique
