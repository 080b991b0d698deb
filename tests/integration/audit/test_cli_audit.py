"""`ackwright audit` from the file to the exit code, against real brokers and with its own Spark session."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ackwright.cli.main import invoke
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import ExitCode
from integration.support.new_topics import NewTopicName
from integration.support.produce import produce
from waiting import ANSWER

PIPELINE = """
apiVersion: ackwright.io/v1alpha1
kind: DeliveryPipeline
metadata: {{name: {name}, namespace: audit}}
spec:
  guarantee: exactly-once
  kafka: {{bootstrapServers: "{bootstrap}"}}
  source: {{topics: [{source}], format: string}}
  transform: {{sql: "SELECT key, upper(value) AS value FROM source"}}
  sink: {{kafka: {{topic: {sink}, format: string}}}}
"""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline whose five records are delivered."""

    servers: str
    source: str
    sink: str
    file: Path

    def passed(self, offset: int) -> None:
        """Commits the position of the only partition."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": f"audit.{self.source}"})
        consumer.commit(offsets=[TopicPartition(self.source, 0, offset)], asynchronous=False)
        consumer.close()


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, topic: NewTopicName, tmp_path: Path) -> Pipeline:
    p = Pipeline(kafka.bootstrap_servers, topic(name="in"), topic(name="out"), tmp_path / "pipeline.yaml")
    p.file.write_text(PIPELINE.format(name=p.source, bootstrap=p.servers, source=p.source, sink=p.sink))
    produce(p.servers, p.source, *(b"a%d" % i for i in range(5)), key=b"k")
    produce(p.servers, p.sink, *(b"A%d" % i for i in range(5)), key=b"k")
    p.passed(5)
    return p


def test_exit_code_and_report(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["audit", "-f", str(pipeline.file), "-o", "json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["guaranteeHeld"], report["verdict"], report["sent"], report["delivered"]) == (True, "held", 5, 5)

    produce(pipeline.servers, pipeline.source, b"a5", key=b"k")
    pipeline.passed(6)
    assert invoke(["audit", "-f", str(pipeline.file)]) == ExitCode.FAILED
    output = capsys.readouterr().out
    assert "exactly-once BROKEN" in output
    assert "lost" in output


def test_what_cannot_be_judged_and_what_cannot_be_audited(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    first = TopicPartition(pipeline.source, 0, 2)
    admin = AdminClient({"bootstrap.servers": pipeline.servers})
    admin.delete_records([first])[first].result(ANSWER)
    produce(pipeline.servers, pipeline.sink, b"unknown", key=b"k")
    command = ["audit", "-f", str(pipeline.file)]
    assert invoke(command) == ExitCode.UNPROVEN, "it may come from a record that was deleted"
    output = capsys.readouterr().out
    assert "exactly-once UNPROVEN" in output
    assert "unjudged  " in output
    assert f"not judged: {pipeline.source}-0: records from 0 to 2 are no longer in the source" in output

    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace(f"topic: {pipeline.sink}", "topic: no-such-topic"))
    assert invoke(command) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.startswith("TopicMissing: describing topic no-such-topic failed")
