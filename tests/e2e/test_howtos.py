"""The guides that use Kafka's own tools: runs the commands of docs/adopt.md and docs/recover.md against real brokers.

`ackwright run` takes the place of the cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.local import jars
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import ExitCode, Reason
from command import ACKWRIGHT
from e2e.page import blocks
from waiting import WAIT, wait_until

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOOL = "kafka-consumer-groups"
RECORDS = 50  # in each of two partitions


class Pipeline:
    """A pipeline that ends when it has delivered its source, and the application that read the source before it."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, name: str) -> None:
        self.brokers, self._directory, self._name = kafka.bootstrap_servers, directory, name
        self.source, self.old, self.group = f"{name}-in", f"{name}-old", f"ops.{name}"
        self._file = directory / "pipeline.yaml"
        topics = [{"name": t, "partitions": 2} for t in (self.source, f"{name}-out")]
        spec = {
            "guarantee": "exactly-once",
            "tolerate": {"brokerFailures": 0},
            "kafka": {"bootstrapServers": self.brokers},
            "source": {"topics": [self.source], "format": "string"},
            "transform": {"sql": "SELECT key, value FROM source"},
            "sink": {"kafka": {"topic": f"{name}-out", "format": "string"}},
            "topics": topics,
            "trigger": {"availableNow": True},
        }
        meta = {"name": name, "namespace": "ops"}
        document = {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": meta, "spec": spec}
        self._file.write_text(yaml.safe_dump(document))
        self.admin = AdminClient({"bootstrap.servers": self.brokers})
        self.admin.create_topics([NewTopic(self.source, 2, 1)], operation_timeout=30)[self.source].result(30)
        producer = Producer({"bootstrap.servers": self.brokers})
        for n in range(2 * RECORDS):
            producer.produce(self.source, f"{n}", partition=n % 2)
        assert producer.flush(30) == 0

    def consume_before(self, *offsets: int) -> None:
        """Commits these offsets as the application: a consumer that subscribes, commits and closes."""
        settings = {
            "bootstrap.servers": self.brokers,
            "group.id": self.old,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe([self.source])
        assert consumer.consume(1, timeout=60)
        consumer.commit(offsets=[TopicPartition(self.source, p, o) for p, o in enumerate(offsets)], asynchronous=False)
        consumer.close()

    def positions(self) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": self.group})
        try:
            return {
                p.partition: p.offset
                for p in consumer.committed([TopicPartition(self.source, p) for p in range(2)], timeout=30)
            }
        finally:
            consumer.close()

    def ackwright(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        argv = [*ACKWRIGHT, *arguments, "-f", str(self._file), "-o", "json"]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    def run(self, *arguments: str) -> None:
        completed = self.ackwright("run", *arguments)
        assert completed.returncode == 0, completed.stdout + completed.stderr

    def run_and_kill(self) -> None:
        """Runs the pipeline without an end, and kills it when it has delivered its source."""
        endless = yaml.safe_load(self._file.read_text())
        del endless["spec"]["trigger"]
        file = self._directory / "endless.yaml"
        file.write_text(yaml.safe_dump(endless))
        with (self._directory / "output").open("w") as output:
            process = subprocess.Popen([*ACKWRIGHT, "run", "-f", str(file)], stdout=output, stderr=output)
        try:
            wait_until(lambda: self.positions() == {0: RECORDS, 1: RECORDS}, "everything is delivered", WAIT)
        finally:
            process.kill()
            process.wait(30)

    def halts(self, reason: Reason) -> str:
        """What `ackwright run` prints when it halts for this reason."""
        halted = self.ackwright("run")
        printed = halted.stdout + halted.stderr
        assert halted.returncode == ExitCode.HALTED, printed
        assert reason in printed
        return printed

    def await_end_of_session(self) -> None:
        """Waits until the brokers accept changes of the group: its member is gone for session.timeout.ms."""

        def is_empty() -> bool:
            return not self.admin.describe_consumer_groups([self.group])[self.group].result(30).members

        wait_until(is_empty, f"{self.group} has no member", WAIT)

    def audit(self) -> Mapping[str, Any]:
        report: Mapping[str, Any] = yaml.safe_load(self.ackwright("audit").stdout)
        return {name: report[name] for name in ("sent", "delivered", "lost", "duplicated", "guaranteeHeld")}

    def follow(self, commands: list[str], **replacements: object) -> str:
        """The output of a page's commands, with the page's placeholders replaced as a reader replaces them."""
        script = "\n".join(commands)
        for word, value in {
            "BROKER": self.brokers,
            "OLD_GROUP": self.old,
            "NAMESPACE.NAME": self.group,
            **replacements,
        }.items():
            script = re.sub(rf"\b{re.escape(word)}\b", str(value), script)
        path = f"{self._directory.parent / 'bin'}:{os.environ['PATH']}"
        completed = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self._directory,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
        assert "Error" not in completed.stdout + completed.stderr, completed.stdout + completed.stderr
        return completed.stdout


def commands(page: str) -> list[str]:
    """The commands of a page that use Kafka's tool, in order."""
    return [
        line for block in blocks((DOCS / page).read_text()) for line in block.text.splitlines() if line.startswith(TOOL)
    ]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as running:
        yield running


@pytest.fixture
def new(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    tool = tmp_path / "bin" / TOOL
    tool.parent.mkdir()
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    tool.write_text(f'#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -cp "{jars.directory("kafka")}/*" {main} "$@"\n')
    tool.chmod(0o755)
    directory = tmp_path / "reader"
    directory.mkdir()
    return Pipeline(kafka, directory, request.node.name.removeprefix("test_").replace("_", "-"))


def test_an_existing_group_is_adopted(new: Pipeline) -> None:
    new.consume_before(30, 10)
    describe, export, adopt = commands("adopt.md")
    assert new.old in new.follow([describe])
    new.follow([export, adopt])
    assert new.positions() == {0: 30, 1: 10}
    new.run()
    assert new.positions() == {0: RECORDS, 1: RECORDS}
    assert new.audit() == {"sent": 60, "delivered": 60, "lost": 0, "duplicated": 0, "guaranteeHeld": True}


def test_lost_positions_are_recovered(new: Pipeline) -> None:
    new.run_and_kill()  # a driver that stops in order records where it stopped
    new.await_end_of_session()
    new.admin.delete_consumer_groups([new.group])[new.group].result(30)
    new.halts(Reason.POSITION_LOST)

    by_offset, by_time = commands("recover.md")
    placeholders = {"GROUP": new.group, "TOPIC": new.source}
    new.await_end_of_session()
    for partition, offset in ((0, RECORDS), (1, RECORDS - 10)):
        new.follow([by_offset.replace("TOPIC:0", f"TOPIC:{partition}")], OFFSET=offset, **placeholders)
    assert new.positions() == {0: RECORDS, 1: RECORDS - 10}
    (fingerprint,) = set(re.findall(r"accept-positions \S+ ([0-9a-f]{12}) ", new.halts(Reason.POSITIONS_MOVED)))
    new.run("--accept-positions", fingerprint)
    report = new.audit()
    assert (report["lost"], report["duplicated"], report["guaranteeHeld"]) == (0, 10, False), (
        "an offset that is too early appears as duplicated records"
    )

    new.await_end_of_session()
    new.follow([by_time], **placeholders)
    assert new.positions() == {0: 0, 1: 0}, "all records are younger than the page's date"
