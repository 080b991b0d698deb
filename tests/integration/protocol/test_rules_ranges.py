"""docs/protocol.md#rule-7 on a real execution of Spark: one task per lane; anything else stops before a write."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import source
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.positions import Lane, Range
from ackwright_stream.ranges import task_ranges
from ackwright_stream.spark_internals.execution import execution_of, running_execution
from integration.support.pipelines import create_topics, document, feed, job_of
from integration.support.spark_local import session


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session()


@pytest.fixture(scope="module")
def job(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    """Two partitions with 40 records each."""
    name = f"ranges-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap_servers, name, partitions=2)
    feed(kafka.bootstrap_servers, name, 2, 0, 40)
    return job_of(
        document(kafka.bootstrap_servers, name, "exactly-once", name, f"{name}-out"), tmp_path_factory.mktemp("ranges")
    )


def stream(
    spark: SparkSession, job: JobSpec, directory: Path, inspect: Callable[[DataFrame, int], None], **options: str
) -> None:
    """Passes each batch to `inspect` until the topic is read."""
    options = {
        **source.reader_options(job),
        "subscribe": job.source.topics[0],
        "startingOffsets": "earliest",
        **options,
    }
    read = spark.readStream.format("kafka").options(**options).load()
    query = (
        read.writeStream.foreachBatch(inspect)
        .option("checkpointLocation", str(directory))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(60)
    finally:
        query.stop()


def outcome(
    spark: SparkSession,
    job: JobSpec,
    directory: Path,
    option: str | None = None,
    change: Callable[[DataFrame], DataFrame] | None = None,
) -> tuple[Range, ...] | JobError:
    """The result of task_ranges for the first batch."""
    outcomes: list[tuple[Range, ...] | JobError] = []

    def inspect(batch: DataFrame, _: int) -> None:
        try:
            outcomes.append(task_ranges(execution_of(change(batch) if change else batch)))
        except JobError as e:
            outcomes.append(e)

    stream(spark, job, directory, inspect, **({option: "8"} if option else {}))
    return outcomes[0]


def test_rule_07_one_task_one_lane(spark: SparkSession, job: JobSpec, tmp_path: Path) -> None:
    topic = job.source.topics[0]
    ranges = outcome(
        spark,
        job,
        tmp_path,
        change=lambda df: df.where("partition >= 0").selectExpr("upper(cast(value AS STRING)) AS value"),
    )
    assert isinstance(ranges, tuple)
    assert set(ranges) == {Range(Lane(topic, 0), 0, 40), Range(Lane(topic, 1), 0, 40)}


def test_rows_of_another_batch_do_not_match_the_running_execution(
    spark: SparkSession, job: JobSpec, tmp_path: Path
) -> None:
    batches: list[DataFrame] = []
    outcomes: list[tuple[Range, ...] | JobError] = []

    def inspect(batch: DataFrame, _: int) -> None:
        batches.append(batch)
        for rows in batches:  # the first batch's with the second one's plan, too
            try:
                outcomes.append(task_ranges(running_execution(rows, spark.streams.active[0])))
            except JobError as e:
                outcomes.append(e)

    stream(spark, job, tmp_path, inspect, maxOffsetsPerTrigger="40")
    first, stale, second = outcomes
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert [(r.start, r.until) for r in (*first, *second)] == [(0, 20), (0, 20), (20, 40), (20, 40)]
    assert isinstance(stale, JobError)
    assert stale.reason is Reason.UNEXPECTED


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_rule_07_a_lane_that_is_split_is_refused(
    spark: SparkSession, job: JobSpec, tmp_path: Path, option: str
) -> None:
    ranges = outcome(spark, job, tmp_path, option=option)
    assert isinstance(ranges, JobError)
    assert ranges.reason is Reason.NOT_STATELESS
    assert "split over several tasks" in ranges.message


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.repartition(2),
        lambda df: df.coalesce(1),
        lambda df: df.union(df),
        lambda df: df.groupBy("key").count(),
        lambda df: df.orderBy("offset"),
    ],
    ids=["repartition", "coalesce", "union", "aggregate", "order"],
)
def test_rule_07_rows_that_leave_their_task_are_refused(
    spark: SparkSession, job: JobSpec, tmp_path: Path, change: Callable[[DataFrame], DataFrame]
) -> None:
    ranges = outcome(spark, job, tmp_path, change=change)
    assert isinstance(ranges, JobError)
    assert ranges.reason is Reason.NOT_STATELESS
