"""Avro in and out with a real schema registry: real brokers, real Spark, and processes that are killed or suspended."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, JobSpec
from ackwright_stream.reports import Verdict
from integration.support.avro_pipelines import NEWER, ORDER, PARTITIONS, SQL, AvroPipeline
from integration.support.pipelines import create_topics, positions_of, read, running
from integration.support.registry import SchemaRegistry
from waiting import WAIT, wait_until

EACH = 300


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path) -> AvroPipeline:
    return AvroPipeline(kafka.bootstrap_servers, registry, tmp_path)


@pytest.fixture
def fragile_registry(tmp_path: Path) -> Iterator[SchemaRegistry]:
    """A registry of one test, to be suspended and killed."""
    with SchemaRegistry(tmp_path / "registry") as server:
        yield server


def ended(job: JobSpec, directory: Path) -> tuple[int, str]:
    """Runs a job to its end; returns its exit code and its failure."""
    with running(job, directory) as life:
        code = life.job.wait(WAIT)
        return code, str(life.job.failure())


def audited(spark: SparkSession, job: JobSpec) -> Verdict:
    report = audit(spark, job)
    print(report)
    return report.verdict


def test_a_newer_writer_and_killed_tasks_exactly_once(pipeline: AvroPipeline, spark: SparkSession) -> None:
    """A producer changes its schema in the middle of the topic, and tasks are killed before and after their commits."""
    pipeline.feed(EACH)
    job = pipeline.job()
    with running(job, pipeline.directory / "1") as life:
        life.until_position(PARTITIONS, EACH)
        newer = pipeline.registry.register(f"{pipeline.source}-value", NEWER)
        for point in ("before-commit", "after-commit"):
            hit = life.arm(point, "kill")
            pipeline.feed(EACH, newer, NEWER)
            life.arrived(hit)
            life.until_position(PARTITIONS, pipeline.sent[0])
        life.job.drain()
        assert life.job.wait(WAIT) == ExitCode.OK, life.job.failure()
    pipeline.assert_delivered_once()
    assert f"{pipeline.sink}-value" in pipeline.registry.subjects()
    assert audited(spark, job) is Verdict.HELD


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_the_other_guarantees(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession, guarantee: str
) -> None:
    pipeline = AvroPipeline(
        kafka.bootstrap_servers, registry, tmp_path, guarantee, spec={"trigger": {"availableNow": True}}
    )
    pipeline.feed(EACH)
    job = pipeline.job()
    code, failure = ended(job, tmp_path)
    assert code == ExitCode.OK, failure
    pipeline.assert_delivered_once()
    assert audited(spark, job) is Verdict.HELD


def test_malformed_records_stop_the_pipeline_or_are_skipped(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = AvroPipeline(
        kafka.bootstrap_servers,
        registry,
        tmp_path,
        source_fields={"onMalformed": "skip"},
        spec={"trigger": {"availableNow": True}},
    )
    pipeline.feed(EACH)
    good = pipeline.encode(pipeline.schema_id, pipeline.record(0, 7))
    unknown = pipeline.encode(999_999, pipeline.record(0, 7))
    pipeline.produce(0, [unknown, good[:-3], good + b"x", b"{}", b"\x00\x00", b""])
    skipping = pipeline.job()
    pipeline.source_fields["onMalformed"] = "fail"
    code, failure = ended(pipeline.job(), tmp_path / "fail")
    assert code == ExitCode.HALTED
    assert f"MalformedRecord: {pipeline.source}-0@{EACH} is not Avro" in failure
    assert "the registry has no schema 999999" in failure
    with running(skipping, tmp_path / "skip") as life:
        assert life.job.wait(WAIT) == ExitCode.OK, life.job.failure()
        final = life.job.progress()
    assert final is None or final.malformed_records == 6
    pipeline.sent[0] -= 6
    pipeline.assert_delivered_once()
    assert audited(spark, skipping) is Verdict.HELD


def test_malformed_avro_records_become_dead_letters(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path, spark: SparkSession
) -> None:
    """Also those whose schema is unknown; the audit decodes them on its own."""
    pipeline = AvroPipeline(
        kafka.bootstrap_servers,
        registry,
        tmp_path,
        source_fields={"onMalformed": "deadLetter"},
        sink_fields={"deadLetter": {"topic": f"letters-{uuid.uuid4().hex[:8]}"}},
        spec={"trigger": {"availableNow": True}},
    )
    letters = pipeline.sink_fields["deadLetter"]["topic"]
    create_topics(pipeline.servers, letters, partitions=1)
    pipeline.feed(EACH)
    good = pipeline.encode(pipeline.schema_id, pipeline.record(0, 7))
    unknown = pipeline.encode(999_999, pipeline.record(0, 7))
    malformed = [unknown, good[:-3], good + b"x", b"{}", b"\x00\x00", b""]
    pipeline.produce(0, malformed)
    job = pipeline.job()
    code, failure = ended(job, tmp_path / "1")
    assert code == ExitCode.OK, failure
    written = [(r.key, r.value, dict(r.headers)) for r in read(pipeline.servers, letters)]
    assert [(key, value) for key, value, _ in written] == [(b"k0", value) for value in malformed]
    offsets = [int(headers["ackwright.dead-letter.offset"] or b"") for _, _, headers in written]
    assert offsets == [EACH + n for n in range(len(malformed))]
    assert b"the registry has no schema 999999" in (written[0][2]["ackwright.dead-letter.reason"] or b"")
    pipeline.sent[0] -= len(malformed)
    pipeline.assert_delivered_once()
    report = audit(spark, job)
    assert (report.verdict, report.dead_letters, report.malformed) == (Verdict.HELD, len(malformed), len(malformed))


def test_nothing_is_written_if_the_schemas_do_not_fit(
    kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path
) -> None:
    pipeline = AvroPipeline(kafka.bootstrap_servers, registry, tmp_path)
    pipeline.feed(5)
    other = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    registry.register(f"{pipeline.sink}-value", other)
    registry.request("PUT", f"/config/{pipeline.sink}-value", {"compatibility": "BACKWARD"})
    code, failure = ended(pipeline.job(), tmp_path / "incompatible")
    assert code == ExitCode.UNAVAILABLE
    assert failure.startswith("SchemaIncompatible: "), failure
    pipeline.source_fields["schemaVersion"] = 7
    code, failure = ended(pipeline.job(), tmp_path / "missing")
    assert code == ExitCode.UNAVAILABLE
    assert failure.startswith("SchemaNotFound: "), failure
    assert "no version 7" in failure
    assert read(kafka.bootstrap_servers, pipeline.sink, isolation="read_uncommitted") == []
    assert positions_of(kafka.bootstrap_servers, f"test.{pipeline.name}", pipeline.source, PARTITIONS) == {}


def test_a_registry_that_hangs_and_dies_delays_the_pipeline_and_loses_nothing(
    kafka: EmbeddedKafka, fragile_registry: SchemaRegistry, tmp_path: Path
) -> None:
    """Records whose schemas are known pass; those of a new schema wait, although malformed ones would be skipped."""
    registry = fragile_registry
    pipeline = AvroPipeline(kafka.bootstrap_servers, registry, tmp_path, source_fields={"onMalformed": "skip"})
    pipeline.feed(EACH)
    job = pipeline.job()
    with running(job, tmp_path / "1") as life:
        life.until_position(PARTITIONS, EACH)
        newer = registry.register(f"{pipeline.source}-value", NEWER)
        registry.suspend()
        pipeline.feed(EACH)  # of a known schema
        life.until_position(PARTITIONS, 2 * EACH)
        pipeline.feed(EACH, newer, NEWER)
        wait_until(
            lambda: "RegistryUnreachable" in str(life.progress().get("lastError")), "the job reports the registry", WAIT
        )
        assert positions_of(kafka.bootstrap_servers, life.group, pipeline.source, PARTITIONS)[0] == 2 * EACH
        registry.resume()
        life.until_position(PARTITIONS, 3 * EACH)
        assert life.progress()["malformedRecords"] == 0
        life.job.drain()
        assert life.job.wait(WAIT) == ExitCode.OK, life.job.failure()
    pipeline.assert_delivered_once()
    registry.kill()
    code, failure = ended(job, tmp_path / "2")
    assert code == ExitCode.UNAVAILABLE
    assert failure.startswith("RegistryUnreachable: "), failure


def test_the_transform_of_the_tests_reads_every_field() -> None:
    assert all(f["name"] in SQL for f in ORDER["fields"])
