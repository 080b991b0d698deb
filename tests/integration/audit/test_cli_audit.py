"""`ackwright audit` from the file to the exit code, against real brokers and with its own Spark session."""

from __future__ import annotations

import json
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


def test_exit_code_and_report(
    kafka: EmbeddedKafka, topic: NewTopicName, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, sink = topic(name="in"), topic(name="out")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(name=source, bootstrap=kafka.bootstrap_servers, source=source, sink=sink))
    produce(kafka.bootstrap_servers, source, *(b"a%d" % i for i in range(5)), key=b"k")
    produce(kafka.bootstrap_servers, sink, *(b"A%d" % i for i in range(5)), key=b"k")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"audit.{source}"})
    consumer.commit(offsets=[TopicPartition(source, 0, 5)], asynchronous=False)
    consumer.close()
    assert invoke(["audit", "-f", str(file), "-o", "json"]) == ExitCode.OK
    report = json.loads(capsys.readouterr().out)
    assert (report["guaranteeHeld"], report["verdict"], report["sent"], report["delivered"]) == (True, "held", 5, 5)

    first = TopicPartition(source, 0, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.delete_records([first])[first].result(ANSWER)
    produce(kafka.bootstrap_servers, sink, b"unknown", key=b"k")
    assert invoke(["audit", "-f", str(file)]) == ExitCode.UNPROVEN, "it may come from a record that was deleted"
    output = capsys.readouterr().out
    assert "exactly-once UNPROVEN" in output
    assert "unjudged  " in output
    assert f"not judged: {source}-0: records from 0 to 2 are no longer in the source" in output

    produce(kafka.bootstrap_servers, source, b"a5", key=b"k")
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"audit.{source}"})
    consumer.commit(offsets=[TopicPartition(source, 0, 6)], asynchronous=False)
    consumer.close()
    assert invoke(["audit", "-f", str(file)]) == ExitCode.FAILED
    output = capsys.readouterr().out
    assert "exactly-once BROKEN" in output
    assert "lost" in output

    file.write_text(file.read_text().replace(f"topic: {sink}", "topic: no-such-topic"))
    assert invoke(["audit", "-f", str(file)]) == ExitCode.UNAVAILABLE
    assert capsys.readouterr().err.startswith("TopicMissing: describing topic no-such-topic failed")
