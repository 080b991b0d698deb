"""Pipelines into every sink on a real cluster: rows arrive once although the pods of executor and driver are killed.

The servers run on this machine, at the address that pods reach. An independent reader compares every row, and the audit
runs as a Job beside the pipeline, with its Secrets.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer

import waiting
from ackwright.local.broker_settings import Security
from ackwright.local.kafka import EmbeddedKafka
from e2e import sink_readers, sink_specs
from e2e.command_line import run_ackwright
from e2e.pipelines import NAMESPACE, SYSTEM, Installation, Pipeline, pipeline
from e2e.sink_specs import Bucket, Letters, Rows, Spec, expected_letters, expected_rows
from integration.support.avro_pipelines import encode
from integration.support.files_stores import Files
from integration.support.iceberg_server import RestCatalogServer
from integration.support.postgres import Database, Postgres
from integration.support.registry import SchemaRegistry
from integration.support.s3_server import BUCKET, KEY, SECRET, S3Server
from lab.network import MACHINE, PODS

# Sent before each of two kills, and before the first. More than six micro-batches, which take 12 s or longer: a pod
# that is killed at once is killed before they are delivered, and the test checks that it was.
RECORDS = 1800
WAIT = 400.0  # seconds; a driver starts in one or two minutes


@dataclass
class Delivery:
    """A pipeline, the records that were sent to it, and what a reader sees of its output."""

    pipeline: Pipeline
    value: Callable[[int], bytes]
    rows: Callable[[], Rows]
    malformed: bool = False
    sent: int = 0

    def send(self, count: int = RECORDS) -> None:
        servers = self.pipeline.installation.kafka
        producer = Producer({"bootstrap.servers": servers, "acks": "all", "enable.idempotence": True, "linger.ms": 20})
        for n in range(self.sent, self.sent + count):
            malformed = self.malformed and sink_specs.is_malformed(n)
            value = sink_specs.malformed_value(n) if malformed else self.value(n)
            producer.produce(self.pipeline.source, value, sink_specs.key(n), partition=n % sink_specs.PARTITIONS)
        assert producer.flush(60) == 0
        self.sent += count

    @property
    def expected(self) -> Rows:
        return expected_rows(self.sent, malformed=self.malformed)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Polls every two seconds, because a look reads the whole output."""
        self.pipeline.wait_until(condition, what, pause=2.0)

    def kill(self, pod: Mapping[str, Any]) -> None:
        """Kills a pod while records are delivered, and waits until more of them are."""
        self.send()
        argv = ("delete", "pod", pod["metadata"]["name"], "--force", "--grace-period=0")
        self.pipeline.installation.kubectl(*argv)
        delivered = self.rows().total()
        assert delivered < self.expected.total(), "the pod was killed when everything was delivered"
        self.wait_until(lambda: self.rows().total() > delivered, "records are delivered after the kill")

    def deliver_under_kills(self) -> None:
        """Delivers records while the pods of the executor and of the driver are killed; compares all rows."""
        p = self.pipeline
        p.wait_for("TopicsReady", "True")
        self.send()
        self.wait_until(lambda: self.rows().total() > 0, "the first rows are delivered")
        self.kill(running_pod(p, "executor"))
        first = running_pod(p, "driver")
        self.kill(first)
        self.wait_until(lambda: self.rows().total() >= self.expected.total(), "everything is delivered")
        assert self.rows() == self.expected
        p.wait_for("Ready", "True", "Delivering")
        assert running_pod(p, "driver")["metadata"]["uid"] != first["metadata"]["uid"]


def running_pod(p: Pipeline, role: str) -> Mapping[str, Any]:
    """A pod of this role that runs, once there is one."""

    def running() -> Mapping[str, Any] | None:
        pods = p.installation.get("pods", labels=f"ackwright.io/pipeline={p.name},ackwright.io/role={role}")
        alive = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
        return next((pod for pod in alive if pod["status"]["phase"] == "Running"), None)

    return waiting.wait_until(running, f"{p.name} has a running {role}", WAIT, pause=0.5)


def audit(p: Pipeline) -> dict[str, Any]:
    """What `ackwright audit` counts, and its exit code."""
    completed = run_ackwright(p.installation, "audit", p.name, "-o", "json")
    assert completed.stdout, completed.stderr
    report = json.loads(completed.stdout)
    names = ("guaranteeHeld", "sent", "lost", "duplicated", "unexpected", "deadLetters")
    return {"exitCode": completed.returncode, **{name: report[name] for name in names}}


def held(delivery: Delivery, *, letters: int = 0) -> dict[str, Any]:
    """What it has to count."""
    counts = {"lost": 0, "duplicated": 0, "unexpected": 0, "deadLetters": letters}
    return {"exitCode": 0, "guaranteeHeld": True, "sent": delivery.sent, **counts}


def check_in_cluster(p: Pipeline) -> dict[str, str]:
    """The verdicts of `ackwright check` in the operator's pod, which has no Spark and no Secrets, by point."""
    argv = ("exec", "--stdin", "deployment/ackwright-operator", "--", "sh", "-c")
    script = "cat >/tmp/check.yaml && ackwright check -f /tmp/check.yaml -o json"
    text = yaml.safe_dump(p.document)
    printed = p.installation.cluster.kubectl("--namespace", SYSTEM, *argv, script, text=text)
    return {point["name"]: point["verdict"] for point in json.loads(printed)}


@pytest.fixture(scope="module")
def s3(installed: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3") / "server", MACHINE) as server:
        yield server


@pytest.fixture
def bucket(installed: Installation, s3: S3Server) -> Bucket:
    return Bucket(s3.endpoint, BUCKET, installed.create_secret("lake-login", username=KEY, password=SECRET))


@pytest.fixture
def catalog(s3: S3Server, tmp_path: Path) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(tmp_path, MACHINE, s3) as server:
        yield server


@pytest.fixture
def database(installed: Installation, tmp_path: Path) -> Iterator[Database]:
    """Its login and its CA are in Secrets."""
    with Postgres(MACHINE, PODS) as server:
        created = Database(server, tmp_path)
        for secret in created.secrets.iterdir():
            installed.create_secret(secret.name, **{file.name: file.read_text() for file in secret.iterdir()})
        yield created


@pytest.fixture
def registry(installed: Installation, tmp_path: Path) -> Iterator[SchemaRegistry]:
    with SchemaRegistry(tmp_path / "registry", MACHINE) as server:
        yield server


@pytest.fixture
def second_kafka(installed: Installation) -> Iterator[EmbeddedKafka]:
    """A cluster of one broker. Its secure listener has the user `writer`."""
    security = Security(users={"writer": "second-cluster"}, tls=True)
    with EmbeddedKafka(brokers=1, security=security, host=MACHINE) as cluster:
        yield cluster


@pytest.fixture
def p(installed: Installation) -> Iterator[Pipeline]:
    """A pipeline that is not applied yet. Tests request it last, so that it is deleted before its servers end."""
    with pipeline(installed, "exactly-once", create=False) as created:
        yield created


def deliver(p: Pipeline, spec: Spec, rows: Callable[[], Rows], **more: Any) -> Delivery:
    """Applies the pipeline, delivers under kills, and returns what was delivered. more: fields of Delivery."""
    p.apply(**spec)
    delivery = Delivery(p, more.pop("value", sink_specs.json_value), rows, **more)
    delivery.deliver_under_kills()
    return delivery


def test_rows_arrive_once_in_a_delta_table_in_s3(s3: S3Server, bucket: Bucket, p: Pipeline) -> None:
    table = f"{BUCKET}/delta-{p.name}"
    delivery = deliver(p, sink_specs.to_delta(p.name, bucket), lambda: sink_readers.delta_rows(s3.files(), table))
    assert audit(p) == held(delivery)
    verdicts = check_in_cluster(p)
    assert verdicts["brokers"] == "ok"
    assert verdicts["sink table"] == "warning", "without Spark it is not checked"
    assert "failed" not in verdicts.values()


def test_rows_arrive_once_in_an_iceberg_table_in_s3(
    s3: S3Server, bucket: Bucket, catalog: RestCatalogServer, p: Pipeline
) -> None:
    table = p.name.replace("-", "_")

    def rows() -> Rows:
        metadata = catalog.metadata_or_none("shop", table)
        return sink_readers.iceberg_rows(s3.files(), metadata) if metadata else Rows()

    delivery = deliver(p, sink_specs.to_iceberg(p.name, bucket, catalog.uri, f"shop.{table}"), rows)
    assert audit(p) == held(delivery)


def test_rows_arrive_once_in_files_in_s3(s3: S3Server, bucket: Bucket, p: Pipeline) -> None:
    files = Files(f"{BUCKET}/files-{p.name}", s3.files())
    delivery = deliver(p, sink_specs.to_files(p.name, bucket), lambda: sink_readers.rows(files.rows()))
    assert audit(p) == held(delivery)


def test_rows_and_dead_letters_arrive_once_in_postgresql(database: Database, p: Pipeline) -> None:
    """With TLS. Control: the audit in the cluster counts a row that is removed, and one that is written twice."""

    def rows() -> Rows:
        return Rows((int(n), item) for n, item in of_tables(database, "SELECT n, item FROM rows"))

    spec = sink_specs.to_postgres(p.name, database.spec()["postgres"])
    delivery = deliver(p, spec, rows, malformed=True)
    columns = "source_partition, source_offset, encode(key, 'hex'), encode(value, 'hex')"
    letters = Letters(
        (int(partition), int(offset), bytes.fromhex(key), bytes.fromhex(value))
        for partition, offset, key, value in of_tables(database, f"SELECT {columns} FROM letters")  # noqa: S608
    )
    assert letters == expected_letters(delivery.sent)
    confirmed = held(delivery, letters=letters.total())
    assert audit(p) == confirmed

    database.sql("DELETE FROM rows WHERE n = 1")
    database.sql("INSERT INTO rows SELECT * FROM rows WHERE n = 2")
    assert audit(p) == {**confirmed, "exitCode": 1, "guaranteeHeld": False, "lost": 1, "duplicated": 1}


def of_tables(database: Database, query: str) -> list[list[str]]:
    """The rows of a query; none until the job has created both tables."""
    tables = database.sql("SELECT count(*) FROM pg_tables WHERE tablename IN ('rows', 'letters')")
    return database.sql(query) if tables == [["2"]] else []


def test_avro_records_and_dead_letters_arrive_once(registry: SchemaRegistry, p: Pipeline) -> None:
    kafka, group = p.installation.kafka, f"{NAMESPACE}.{p.name}"
    schema_id = registry.register(f"{p.name}-in-value", sink_specs.AVRO)
    delivery = deliver(
        p,
        sink_specs.from_avro_to_avro(p.name, registry.url),
        lambda: sink_readers.avro_rows(kafka, f"{p.name}-out", registry),
        value=lambda n: encode(schema_id, sink_specs.AVRO, sink_specs.record(n)),
        malformed=True,
    )
    letters = sink_readers.letters(kafka, f"{p.name}-letters", p.source, group)
    assert letters == expected_letters(delivery.sent)
    assert p.condition("SchemasReady")["status"] == "True"
    assert audit(p) == held(delivery, letters=letters.total())


def test_records_arrive_once_in_another_kafka_cluster(second_kafka: EmbeddedKafka, p: Pipeline) -> None:
    """With TLS and a login that are not those of the source, both from Secrets."""
    assert second_kafka.security is not None
    ((user, password),) = second_kafka.security.users.items()
    login = p.installation.create_secret("second-login", username=user, password=password)
    ca = p.installation.create_secret("second-ca", **{"ca.crt": second_kafka.ca_file.read_text()})
    spec = sink_specs.to_another_cluster(p.name, second_kafka.secure_bootstrap_servers, login, ca)
    delivery = deliver(p, spec, lambda: sink_readers.json_rows(second_kafka.bootstrap_servers, f"{p.name}-out"))
    assert audit(p) == held(delivery)
