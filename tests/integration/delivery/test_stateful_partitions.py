"""Partitions are added to the source of a stateful pipeline: their records are counted once, as all others.

See docs/stateful.md#partitions-of-the-source.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.audit import audit
from ackwright_stream.reports import Verdict
from integration.support.pipelines import read
from integration.support.stateful_pipelines import PARTITIONS, Counted, stateful_pipeline
from sql_texts import COUNTS_BY_KEY


@pytest.mark.parametrize("point", ["evaluated", "batch-end"])
def test_partitions_added_below_a_driver_that_is_killed_in_their_first_batch(
    kafka: EmbeddedKafka, tmp_path: Path, point: str
) -> None:
    with stateful_pipeline(kafka, tmp_path, f"grown-{uuid.uuid4().hex[:8]}") as pipeline:
        with pipeline.life() as job:
            pipeline.caught_up(job)
            pipeline.add_partitions(PARTITIONS + 1)
            pipeline.caught_up(job)  # by the same process: it takes the pipeline again
            hit = job.arm(point)
            pipeline.add_partitions(PARTITIONS + 2)
            job.arrived(hit)
            job.job.kill()
        pipeline.feed()
        pipeline.drained()
        assert pipeline.counted() == Counted()
        assert {lane.partition for lane in pipeline.last_decision().positions} == set(range(PARTITIONS + 2))


def test_partitions_added_while_no_driver_runs_are_counted_and_audited(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    with stateful_pipeline(kafka, tmp_path, f"grown-{uuid.uuid4().hex[:8]}") as pipeline:
        pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS_BY_KEY))
        pipeline.drained()
        pipeline.add_partitions(PARTITIONS + 1)
        pipeline.feed(100)
        pipeline.drained()
        report = audit(spark, pipeline.spec)
        assert report.verdict is Verdict.HELD, report
        assert (report.counted, report.expected) == ((PARTITIONS + 1) * pipeline.fed, PARTITIONS + 1)


def test_a_partition_that_begins_behind_expired_records_is_counted_from_its_first_one(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Spark by itself refuses a first offset other than 0."""
    with stateful_pipeline(kafka, tmp_path, f"grown-{uuid.uuid4().hex[:8]}") as pipeline:
        pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS_BY_KEY))
        pipeline.drained()
        pipeline.add_partitions(PARTITIONS + 1)
        expired = TopicPartition(pipeline.source, PARTITIONS, 30)
        admin = AdminClient({"bootstrap.servers": pipeline.servers})
        admin.delete_records([expired])[expired].result(30)
        pipeline.feed(100)
        pipeline.drained()
        counts = {record.key: int(record.value or b"") for record in read(pipeline.servers, pipeline.sink)}
        fed = {f"p{p}".encode(): pipeline.fed for p in range(PARTITIONS)}
        assert counts == {**fed, f"p{PARTITIONS}".encode(): pipeline.fed - 30}
