"""Avro records as rows of a table: real brokers, a real registry, real Spark, and tasks that are killed."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, JobSpec
from ackwright_stream.reports import Verdict
from integration.support import delta_stores
from integration.support.avro_pipelines import NEWER, PARTITIONS, AvroPipeline
from integration.support.pipelines import running
from integration.support.postgres import Database
from integration.support.registry import SchemaRegistry
from waiting import WAIT

EACH = 200
Row = tuple[Any, ...]


def delivered(pipeline: AvroPipeline, job: JobSpec, *points: str) -> None:
    """Delivers records of two schemas, with a task killed at each point."""
    pipeline.feed(EACH)
    with running(job, pipeline.directory / "job") as life:
        life.until_position(PARTITIONS, EACH)
        newer = pipeline.registry.register(f"{pipeline.source}-value", NEWER)
        for point in points:
            hit = life.arm(point, "kill")
            pipeline.feed(EACH, newer, NEWER)
            life.arrived(hit)
            life.until_position(PARTITIONS, pipeline.sent[0])
        life.job.drain()
        assert life.job.wait(WAIT) == ExitCode.OK, life.job.failure()


def expected(pipeline: AvroPipeline) -> list[Row]:
    """The rows: id, item, double_price and the time, sorted."""
    records = [pipeline.expected(pipeline.record(p, n)) for p in range(PARTITIONS) for n in range(pipeline.sent[p])]
    return sorted((r["id"], r["item"], r["double_price"], r["at"]) for r in records)


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, registry: SchemaRegistry, tmp_path: Path) -> AvroPipeline:
    return AvroPipeline(kafka.bootstrap_servers, registry, tmp_path)


def test_avro_records_are_rows_of_a_delta_table_once(pipeline: AvroPipeline, spark: SparkSession) -> None:
    table = delta_stores.Table(pipeline.directory / "table")
    pipeline.spec["sink"] = {"delta": {"path": str(table.path), "createTable": True}}
    job = pipeline.job()
    delivered(pipeline, job, "mid-produce", "staged")
    rows = sorted((row["id"], row["item"], row["double_price"], row["at"]) for row in table.rows())
    assert rows == expected(pipeline)
    assert audit(spark, job).verdict is Verdict.HELD


def test_avro_records_are_rows_of_a_table_of_postgresql_once(
    pipeline: AvroPipeline, database: Database, spark: SparkSession
) -> None:
    pipeline.spec["sink"] = database.spec("orders", createTable=True)
    job = pipeline.job(secrets=str(database.secrets))
    delivered(pipeline, job, "before-commit", "after-commit")
    columns = "id, item, double_price, (extract(epoch FROM at) * 1000000)::bigint"
    rows = database.sql(f"SELECT {columns} FROM orders ORDER BY id")  # noqa: S608
    assert [(int(i), item, Decimal(price), int(at)) for i, item, price, at in rows] == [
        (i, item, price, round(at.timestamp() * 1_000_000)) for i, item, price, at in expected(pipeline)
    ]
    assert audit(spark, job).verdict is Verdict.HELD
