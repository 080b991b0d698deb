"""Real brokers for the integration tests: one cluster for the whole session, and one per module for tests that break brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.spark_start import BRIEF
from ackwright_stream.admin_client import AdminClient
from integration.support.new_topics import NewTopicName, create_topic

os.environ.setdefault(
    "JDK_JAVA_OPTIONS", BRIEF
)  # for the jobs that tests start, most of which live for less than a minute


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
