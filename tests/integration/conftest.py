"""Real brokers for the integration tests.

One cluster serves the session; tests that break brokers share one per module. Markers come from folders and fixtures.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.spark_start import SHORT_LIVED
from ackwright_stream.admin_client import AdminClient
from integration.support.iceberg_server import RestCatalogServer
from integration.support.new_topics import NewTopicName, create_topic
from integration.support.postgres import Database, Postgres
from integration.support.postgres_pipelines import TABLE
from integration.support.registry import SchemaRegistry
from integration.support.rules import NewPipe, pipes
from integration.support.spark_local import session
from integration.support.two_clusters import TwoClusters
from server_starts import started

# For the jobs that tests start: most of them run for less than a minute.
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED)

HERE = Path(__file__).parent
SLOW = [line for line in (HERE / "slow_tests.txt").read_text().splitlines() if line and not line.startswith("#")]
MANY_DESCRIPTORS = 150  # more than before; one test adds about 130 at most
NEEDS = {  # what the tests of a folder start
    "audit": {"kafka", "spark"},
    "brokers": {"kafka"},
    "cli": {"kafka", "spark"},
    "delivery": {"kafka", "spark"},
    "delta": set(),
    "iceberg": set(),
    "examples": {"kafka", "spark"},
    "files": set(),
    "postgres": {"postgres"},
    "protocol": {"kafka"},
    "registry": set(),
    "spark": {"spark"},
    "topics": {"kafka"},
    "two_clusters": {"kafka"},
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test with what it needs, and those of slow_tests.txt as slow."""
    here = [item for item in items if item.path.is_relative_to(HERE)]
    matched = set()
    for item in here:
        fixtures = set(getattr(item, "fixturenames", ()))
        for marker in NEEDS[item.path.parent.name] | (fixtures & {"kafka", "postgres", "spark"}):
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


class Descriptors:
    """The file descriptors of this process that are in use."""

    def __init__(self) -> None:
        self._before = 0  # after garbage was last collected

    def collect_if_many(self) -> None:
        """Collects garbage, which takes a second in a process with Spark."""
        if self._open() > self._before + MANY_DESCRIPTORS:
            gc.collect()
            self._before = self._open()

    def _open(self) -> int:
        return len(os.listdir("/proc/self/fd"))


@pytest.fixture(scope="session")
def descriptors() -> Descriptors:
    return Descriptors()


@pytest.fixture(autouse=True)
def few_descriptors(descriptors: Descriptors) -> Iterator[None]:
    """Closes the Kafka clients that tests have left, once there are many.

    Drivers that tests abandon are cycles of garbage with clients, each with several threads and descriptors. Python
    collects old objects seldom, and py4j's server for foreachBatch uses select(), which fails from descriptor 1,024 on:
    the query hangs.
    """
    yield
    descriptors.collect_if_many()


@pytest.fixture(scope="session")
def kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers that all tests share. Never break them: tests that do use fragile_kafka."""
    with started("3 Kafka brokers", EmbeddedKafka()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def fragile_kafka() -> Iterator[EmbeddedKafka]:
    """Three brokers of one module, to be killed, suspended and restarted. A test leaves them running and in sync."""
    with started("3 Kafka brokers", EmbeddedKafka()) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def two_clusters() -> Iterator[TwoClusters]:
    """A broker of the source and one of the sink, of one module. A test leaves both running."""
    with (
        started("1 Kafka broker", EmbeddedKafka(brokers=1)) as source,
        started("1 Kafka broker", EmbeddedKafka(brokers=1)) as sink,
    ):
        yield TwoClusters(source, sink)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server that all tests share. Never stop it: tests that do use fragile_postgres."""
    with started("PostgreSQL", Postgres()) as server:
        yield server


@pytest.fixture(scope="module")
def fragile_postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of one module, to be killed and started again. A test leaves it running."""
    with started("PostgreSQL", Postgres()) as server:
        yield server


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchemaRegistry]:
    """A schema registry that all tests share. A test leaves it running."""
    with SchemaRegistry(tmp_path_factory.mktemp("registry")) as server:
        yield server


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    """A REST catalog of Iceberg that all tests share. A test leaves it running."""
    with RestCatalogServer(tmp_path_factory.mktemp("rest-catalog")) as server:
        yield server


@pytest.fixture(scope="session")
def admin(kafka: EmbeddedKafka) -> AdminClient:
    """An admin client of the shared brokers."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The Spark session that all tests of this process share."""
    return session()


@pytest.fixture
def pipe(kafka: EmbeddedKafka, admin: AdminClient, tmp_path: Path) -> Iterator[NewPipe]:
    """A function that creates a pipeline without Spark. Its drivers end with the test."""
    yield from pipes(kafka, admin, tmp_path)


@pytest.fixture
def database(postgres: Postgres, tmp_path: Path) -> Database:
    """An empty database, with the user of a job."""
    return Database(postgres, tmp_path)


@pytest.fixture
def rows_table(database: Database) -> None:
    """The database has a table `rows` for keys and values."""
    database.sql(TABLE)


@pytest.fixture
def topic(admin: AdminClient) -> NewTopicName:
    """A function that creates a topic and returns its unique name.

    Its arguments: partitions=1, replicas=3, config=None, name="t".
    """
    return lambda **options: create_topic(admin, **options)
