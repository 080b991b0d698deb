"""Real brokers for the integration tests: one cluster for the whole session, and one per module for tests that break brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.spark_start import SHORT_LIVED
from ackwright_stream.admin_client import AdminClient
from integration.support.new_topics import NewTopicName, create_topic

os.environ.setdefault(
    "JDK_JAVA_OPTIONS", SHORT_LIVED
)  # for the jobs that tests start, most of which live for less than a minute

HERE = Path(__file__).parent
SLOW = [line for line in (HERE / "slow_tests.txt").read_text().splitlines() if line and not line.startswith("#")]
NEEDS = {  # what the tests of a folder start
    "audit": {"kafka", "spark"},
    "brokers": {"kafka"},
    "cli": {"kafka", "spark"},
    "delivery": {"kafka", "spark"},
    "protocol": {"kafka"},
    "spark": {"spark"},
    "topics": {"kafka"},
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with what it needs, and those of slow_tests.txt as slow."""
    here = [item for item in items if item.path.is_relative_to(HERE)]
    matched = set()
    for item in here:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker in NEEDS[item.path.parent.name] | (fixtures & {"kafka", "spark"}):
            item.add_marker(marker)
        name = f"{item.path.relative_to(HERE).as_posix()}::{item.nodeid.partition('::')[2]}"
        if patterns := {pattern for pattern in SLOW if fnmatchcase(name, pattern)}:
            item.add_marker("slow")
            matched |= patterns
    if any("::" in argument for argument in config.args):
        return  # a part of a file: the patterns of its other tests match nothing
    files = {item.path.relative_to(HERE).as_posix() for item in here}
    stale = sorted(pattern for pattern in set(SLOW) - matched if pattern.partition("::")[0] in files)
    if stale:
        raise pytest.UsageError(f"slow_tests.txt names tests that do not exist: {', '.join(stale)}")


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
