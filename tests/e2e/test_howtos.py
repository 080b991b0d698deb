"""The how-tos that take Kafka's own tools: the commands of docs/adopt.md and docs/recover.md, taken from the pages and run against real
brokers. What they say to do in a cluster is done here by `ackwright run`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
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
from ackwright_stream.jobspec import ExitCode
from e2e.page import blocks

DOCS = Path(__file__).resolve().parents[2] / "docs"
TOOL = "kafka-consumer-groups"
EACH = 50  # records in each of two partitions


class Pipeline:
    """One that ends when it has delivered what is there, and the application that read its source before."""

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
        for n in range(2 * EACH):
            producer.produce(self.source, f"{n}", partition=n % 2)
        assert producer.flush(30) == 0

    def consumed(self, *offsets: int) -> None:
        """By an ordinary consumer, which subscribes, commits, and goes."""
        chosen = {
            "bootstrap.servers": self.brokers,
            "group.id": self.old,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(chosen)
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
        argv = [
            sys.executable,
            "-c",
            "from ackwright.cli.main import main; main()",
            *arguments,
            "-f",
            str(self._file),
            "-o",
            "json",
        ]
        return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)

    def ran(self) -> None:
        done = self.ackwright("run")
        assert done.returncode == 0, done.stdout + done.stderr

    def audited(self) -> Mapping[str, Any]:
        report: Mapping[str, Any] = yaml.safe_load(self.ackwright("audit").stdout)
        return {name: report[name] for name in ("sent", "delivered", "lost", "duplicated", "guaranteeHeld")}

    def follow(self, commands: list[str], **meant: object) -> str:
        """Runs commands of a page, with the reader's words for the page's."""
        script = "\n".join(commands)
        for word, value in {
            "BROKER": self.brokers,
            "OLD_GROUP": self.old,
            "NAMESPACE.NAME": self.group,
            **meant,
        }.items():
            script = re.sub(rf"\b{re.escape(word)}\b", str(value), script)
        path = f"{self._directory.parent / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self._directory, env={**os.environ, "PATH": path}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Error" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout


def commands(page: str) -> list[str]:
    """Those of Kafka's tool, in the page's order."""
    return [
        line for block in blocks((DOCS / page).read_text()) for line in block.text.splitlines() if line.startswith(TOOL)
    ]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1) as found:
        yield found


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
    new.consumed(30, 10)
    describe, export, take = commands("adopt.md")
    assert new.old in new.follow([describe])
    new.follow([export, take])
    assert new.positions() == {0: 30, 1: 10}
    new.ran()
    assert new.positions() == {0: EACH, 1: EACH}
    assert new.audited() == {"sent": 60, "delivered": 60, "lost": 0, "duplicated": 0, "guaranteeHeld": True}


def test_lost_positions_are_recovered(new: Pipeline) -> None:
    new.ran()
    new.admin.delete_consumer_groups([new.group])[new.group].result(30)
    halted = new.ackwright("run")
    assert halted.returncode == ExitCode.HALTED, halted.stdout + halted.stderr
    assert "PositionLost" in halted.stdout + halted.stderr

    by_offset, by_time = commands("recover.md")
    known = {"GROUP": new.group, "TOPIC": new.source}
    for partition, offset in ((0, EACH), (1, EACH - 10)):
        new.follow([by_offset.replace("TOPIC:0", f"TOPIC:{partition}")], OFFSET=offset, **known)
    assert new.positions() == {0: EACH, 1: EACH - 10}
    new.ran()
    said = new.audited()
    assert (said["lost"], said["duplicated"], said["guaranteeHeld"]) == (0, 10, False), (
        "an offset set too early shows as duplicated"
    )

    new.follow([by_time], **known)
    assert new.positions() == {0: 0, 1: 0}, "all records are younger than the page's date"
