"""JSON with a schema in and out with a real registry: real brokers, real Spark, and processes that are killed.

tests/integration/delivery/test_avro.py has what does not depend on the format: a registry that hangs or is down.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, JobSpec
from ackwright_stream.reports import Verdict
from integration.support.avro_pipelines import PARTITIONS
from integration.support.json_schema_pipelines import NEWER, ORDER, JsonSchemaPipeline
from integration.support.pipelines import create_topics, positions_of, read, running
from integration.support.registry import SchemaRegistry
from waiting import WAIT

EACH = 200
ONCE = {"trigger": {"availableNow": True}}


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path) -> JsonSchemaPipeline:
    return JsonSchemaPipeline(kafka.bootstrap_servers, registry, tmp_path)


def ended(job: JobSpec, directory: Path) -> tuple[int, str]:
    """Runs a job to its end; returns its exit code and its failure."""
    with running(job, directory) as life:
        code = life.job.wait(WAIT)
        return code, str(life.job.failure())


def audited(spark: SparkSession, job: JobSpec) -> Verdict:
    report = audit(spark, job)
    print(report)
    return report.verdict


def test_a_newer_writer_and_killed_tasks_exactly_once(pipeline: JsonSchemaPipeline, spark: SparkSession) -> None:
    """A producer changes its schema in the middle of the topic, and tasks are killed before and after their commits."""
    pipeline.feed(EACH)
    job = pipeline.job()
    with running(job, pipeline.directory / "1") as life:
        life.until_position(PARTITIONS, EACH)
        newer = pipeline.registry.register(f"{pipeline.source}-value", NEWER, "JSON")
        for point in ("before-commit", "after-commit"):
            hit = life.arm(point, "kill")
            pipeline.feed(EACH, newer, NEWER)
            life.arrived(hit)
            life.until_position(PARTITIONS, pipeline.sent[0])
        life.job.drain()
        assert life.job.wait(WAIT) == ExitCode.OK, life.job.failure()
    pipeline.assert_delivered_once()
    written = json.loads(pipeline.registry.schema_of(f"{pipeline.sink}-value"))
    assert written["properties"]["double_price"] == {"type": ["null", "number"]}
    assert written["additionalProperties"] is False
    assert audited(spark, job) is Verdict.HELD


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_the_other_guarantees(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession, guarantee: str
) -> None:
    pipeline = JsonSchemaPipeline(kafka.bootstrap_servers, registry, tmp_path, guarantee, spec=dict(ONCE))
    pipeline.feed(EACH)
    job = pipeline.job()
    code, failure = ended(job, tmp_path)
    assert code == ExitCode.OK, failure
    pipeline.assert_delivered_once()
    assert audited(spark, job) is Verdict.HELD


def malformed_values(pipeline: JsonSchemaPipeline) -> list[bytes]:
    """One of each kind; the first has an unknown schema."""
    good = pipeline.encode(pipeline.schema_id, pipeline.record(0, 7))
    unknown = pipeline.encode(999_999, pipeline.record(0, 7))
    invalid = pipeline.encode(pipeline.schema_id, {"id": 1, "item": ""})
    no_column = pipeline.encode(pipeline.schema_id, {"id": 2**70, "item": "x"})
    return [unknown, good[:-3], good + b"x", invalid, no_column, b"{}", b'{"id": 1, "item": "x"}', b""]


def test_malformed_records_stop_the_pipeline_or_become_dead_letters(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = JsonSchemaPipeline(kafka.bootstrap_servers, registry, tmp_path, spec=dict(ONCE))
    letters = f"letters-{uuid.uuid4().hex[:8]}"
    create_topics(pipeline.servers, letters, partitions=1)
    pipeline.feed(EACH)
    malformed = malformed_values(pipeline)
    pipeline.produce(0, malformed)
    code, failure = ended(pipeline.job(), tmp_path / "fail")
    assert code == ExitCode.HALTED
    assert f"MalformedRecord: {pipeline.source}-0@{EACH} is not JSON for the schema of subject" in failure
    assert "the registry has no schema 999999" in failure
    pipeline.source_fields["onMalformed"] = "deadLetter"
    pipeline.sink_fields["deadLetter"] = {"topic": letters}
    pipeline.spec |= ONCE
    job = pipeline.job()
    code, failure = ended(job, tmp_path / "letters")
    assert code == ExitCode.OK, failure
    written = [(r.key, r.value, dict(r.headers)) for r in read(pipeline.servers, letters)]
    assert [(key, value) for key, value, _ in written] == [(b"k0", value) for value in malformed]
    reasons = [str(headers["ackwright.dead-letter.reason"]) for _, _, headers in written]
    assert '$.item: \\"\\" is shorter than 1 character' in reasons[3] or "shorter than 1" in reasons[3]
    pipeline.sent[0] -= len(malformed)
    pipeline.assert_delivered_once()
    report = audit(spark, job)
    assert (report.verdict, report.dead_letters, report.malformed) == (Verdict.HELD, len(malformed), len(malformed))


def test_a_declared_schema_refuses_a_record(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession
) -> None:
    """Properties that may be absent but not null are left out; one record breaks a rule of the schema."""
    properties = {"id": {"type": "integer", "maximum": EACH - 1}, "item": {"type": "string"}}
    declared = {"type": "object", "properties": properties, "required": ["id"], "additionalProperties": False}
    pipeline = JsonSchemaPipeline(
        kafka.bootstrap_servers, registry, tmp_path, spec=dict(ONCE), sink_fields={"schema": json.dumps(declared)}
    )
    pipeline.spec["transform"] = {"sql": "SELECT id % 1000000 AS id, IF(id % 2 = 0, item, NULL) AS item FROM source"}
    spec = dict(pipeline.spec)
    pipeline.feed(EACH)
    job = pipeline.job()
    code, failure = ended(job, tmp_path / "1")
    assert code == ExitCode.OK, failure
    assert pipeline.output()[0][:2] == [{"id": 0, "item": "item 0"}, {"id": 1}]
    assert audited(spark, job) is Verdict.HELD
    pipeline.spec |= spec
    pipeline.produce(0, [pipeline.encode(pipeline.schema_id, pipeline.record(0, EACH))])
    code, failure = ended(pipeline.job(), tmp_path / "2")
    assert code == ExitCode.HALTED
    assert f"the sink's schema refuses a record of the transform: $.id: {EACH} is greater than" in failure


def test_nothing_is_written_if_the_schemas_do_not_fit(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path
) -> None:
    pipeline = JsonSchemaPipeline(kafka.bootstrap_servers, registry, tmp_path)
    pipeline.feed(5)
    other = {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": False}
    registry.register(f"{pipeline.sink}-value", other, "JSON")
    registry.request("PUT", f"/config/{pipeline.sink}-value", {"compatibility": "BACKWARD"})
    code, failure = ended(pipeline.job(), tmp_path / "incompatible")
    assert code == ExitCode.UNAVAILABLE
    assert failure.startswith("SchemaIncompatible: "), failure
    open_object = {**ORDER, "additionalProperties": True}
    registry.register(f"{pipeline.source}-value", open_object, "JSON")
    pipeline.source_fields["schemaVersion"] = 2
    code, failure = ended(pipeline.job(), tmp_path / "open")
    assert code == ExitCode.UNAVAILABLE
    assert "SchemaIncompatible" in failure
    assert "$ is an object that may have properties besides those that it names" in failure
    assert read(kafka.bootstrap_servers, pipeline.sink, isolation="read_uncommitted") == []
    assert positions_of(kafka.bootstrap_servers, f"test.{pipeline.name}", pipeline.source, PARTITIONS) == {}
