"""Each example with a README delivers on real servers what the README shows, and its audit proves the guarantee."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.gallery import Example, Run, Servers
from integration.support.postgres import Database
from integration.support.s3_server import KEY, SECRET, S3Server
from integration.support.two_clusters import TwoClusters
from unit.documents import ROOT
from waiting import WAIT, wait_until


@pytest.fixture
def start(tmp_path: Path) -> Callable[[str, Servers], tuple[Example, Run]]:
    """A function that returns an example, and its pipelines at these servers."""
    return lambda name, servers: (Example(name), Run(Example(name), servers, tmp_path))


Start = Callable[[str, Servers], tuple[Example, Run]]


@pytest.mark.parametrize(
    "name", ["inventory", "iot-metrics", "logs", "dead-letters", "several-teams", "windowed-counts", "join"]
)
def test_an_example_delivers_what_its_readme_shows(kafka: EmbeddedKafka, start: Start, name: str) -> None:
    example, run = start(name, Servers(kafka.bootstrap_servers))
    with run.running():
        run.feed()
        assert run.read() == example.output
    run.assert_held()


@pytest.mark.parametrize("name", ["ledger", "change-data-capture"])
def test_an_example_with_a_table_delivers_what_its_readme_shows(
    kafka: EmbeddedKafka, database: Database, start: Start, name: str
) -> None:
    database.sql((ROOT / "examples" / name / "table.sql").read_text())
    address = {"host": database.server.host, "port": database.server.port, "database": database.name}
    servers = Servers(kafka.bootstrap_servers, secrets=database.secrets, spec={"sink": {"postgres": address}})
    example, run = start(name, servers)
    with run.running():
        run.feed()
        wait_until(lambda: [" ".join(row) for row in database.sql(example.query)] == example.output, "the rows", WAIT)
    run.assert_held()


def test_the_example_with_two_clusters_delivers_what_its_readme_shows(two_clusters: TwoClusters, start: Start) -> None:
    """Without logins, and with one broker each: no failure is tolerated."""
    plain = {"auth": None, "tls": None}
    servers = Servers(
        two_clusters.source.bootstrap_servers,
        two_clusters.sink.bootstrap_servers,
        spec={"kafka": plain, "sink": {"kafka": plain}, "tolerate": {"brokerFailures": 0}},
    )
    example, run = start("two-clusters", servers)
    with run.running():
        run.feed()
        assert run.read() == example.output
    run.assert_held()


@pytest.fixture
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        yield server


def rows(s3: S3Server, table: str) -> list[str]:
    """The rows of a Delta table that has only grown, read without the sink's client."""
    files = s3.files()
    entries = files.get_file_info(pafs.FileSelector(f"{table}/_delta_log", allow_not_found=True))
    actions = [
        json.loads(line)
        for entry in entries
        if entry.path.endswith(".json")
        for line in files.open_input_stream(entry.path).read().splitlines()
    ]
    content = [
        (row["visitor"], row["page"], added["partitionValues"]["day"])
        for added in (action["add"] for action in actions if "add" in action)
        for row in pq.ParquetFile(files.open_input_file(f"{table}/{unquote(added['path'])}")).read().to_pylist()
    ]
    return [" ".join(row) for row in sorted(content)]


def test_the_example_with_a_data_lake_delivers_what_its_readme_shows(
    kafka: EmbeddedKafka, s3: S3Server, start: Start, tmp_path: Path
) -> None:
    login = tmp_path / "secrets" / "lake-login"
    login.mkdir(parents=True)
    (login / "username").write_text(KEY)
    (login / "password").write_text(SECRET)
    address = {"endpoint": s3.endpoint, "region": "us-east-1"}
    servers = Servers(kafka.bootstrap_servers, secrets=login.parent, spec={"sink": {"delta": {"s3": address}}})
    example, run = start("data-lake", servers)
    with run.running():
        run.feed()
        wait_until(lambda: rows(s3, "lake/page-views") == example.output, "the rows", WAIT)
    run.assert_held()
