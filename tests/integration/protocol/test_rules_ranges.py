"""docs/protocol.md#rule-7 on a real execution of Spark: each lane is in one task; anything else stops first."""

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
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.ranges import tasks
from ackwright_stream.spark_internals.execution import execution_of, merged, running_execution
from integration.support.pipelines import create_topics, document, feed, job_of


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
) -> tuple[Task, ...] | JobError:
    """The result of tasks() for the first batch."""
    outcomes: list[tuple[Task, ...] | JobError] = []

    def inspect(batch: DataFrame, _: int) -> None:
        try:
            outcomes.append(tasks(execution_of(change(batch) if change else batch)))
        except JobError as e:
            outcomes.append(e)

    stream(spark, job, directory, inspect, **({option: "8"} if option else {}))
    return outcomes[0]


def test_rule_07_without_merging_each_lane_has_a_task(spark: SparkSession, job: JobSpec, tmp_path: Path) -> None:
    topic = job.source.topics[0]
    batch = outcome(
        spark,
        job,
        tmp_path,
        change=lambda df: df.where("partition >= 0").selectExpr("upper(cast(value AS STRING)) AS value"),
    )
    assert isinstance(batch, tuple)
    assert [(t.slot, len(t.ranges), t.sources) for t in batch] == [(0, 1, (0,)), (1, 1, (1,))]
    assert {r for t in batch for r in t.ranges} == {Range(Lane(topic, 0), 0, 40), Range(Lane(topic, 1), 0, 40)}


@pytest.mark.parametrize(("slots", "lanes"), [(1, [2]), (2, [1, 1]), (8, [1, 1])])
def test_rule_07_lanes_are_grouped_into_at_most_as_many_tasks_as_slots(
    spark: SparkSession, job: JobSpec, tmp_path: Path, slots: int, lanes: list[int]
) -> None:
    """A task has the rows of exactly its lanes, and knows Spark's number of each."""
    topic = job.source.topics[0]
    rows_of: list[dict[int, set[tuple[int, int]]]] = []

    def inspect(batch: DataFrame, _: int) -> None:
        merged_ = merged(batch.selectExpr("partition", "spark_partition_id() AS source"), slots)
        batches.append(tasks(execution_of(merged_)))
        rows = merged_.selectExpr("spark_partition_id() AS task", "partition", "source").distinct().collect()
        rows_of.append({n: {(r.partition, r.source) for r in rows if r.task == n} for n in range(len(lanes))})

    batches: list[tuple[Task, ...]] = []
    stream(spark, job, tmp_path, inspect)
    batch = batches[0]
    assert [t.slot for t in batch] == list(range(len(lanes)))
    assert [len(t.ranges) for t in batch] == lanes
    assert {r for t in batch for r in t.ranges} == {Range(Lane(topic, 0), 0, 40), Range(Lane(topic, 1), 0, 40)}
    of_tasks = {t.slot: {(r.lane.partition, n) for r, n in zip(t.ranges, t.sources, strict=True)} for t in batch}
    assert of_tasks == rows_of[0]


def test_rows_of_another_batch_do_not_match_the_running_execution(
    spark: SparkSession, job: JobSpec, tmp_path: Path
) -> None:
    batches: list[DataFrame] = []
    outcomes: list[tuple[Task, ...] | JobError] = []

    def inspect(batch: DataFrame, _: int) -> None:
        batches.append(batch)
        for rows in batches:  # the first batch's with the second one's plan, too
            try:
                outcomes.append(tasks(running_execution(rows, spark.streams.active[0])))
            except JobError as e:
                outcomes.append(e)

    stream(spark, job, tmp_path, inspect, maxOffsetsPerTrigger="40")
    first, stale, second = outcomes
    assert isinstance(first, tuple)
    assert isinstance(second, tuple)
    assert [(r.start, r.until) for t in (*first, *second) for r in t.ranges] == [(0, 20), (0, 20), (20, 40), (20, 40)]
    assert isinstance(stale, JobError)
    assert stale.reason is Reason.UNEXPECTED


@pytest.mark.parametrize("option", ["minPartitions", "maxRecordsPerPartition"])
def test_rule_07_a_lane_that_is_split_is_refused(
    spark: SparkSession, job: JobSpec, tmp_path: Path, option: str
) -> None:
    ranges = outcome(spark, job, tmp_path, option=option)
    assert isinstance(ranges, JobError)
    assert ranges.reason is Reason.NOT_STATELESS
    assert "split over several ranges" in ranges.message


@pytest.mark.parametrize(
    "change",
    [
        lambda df: df.repartition(2),
        lambda df: merged(df.coalesce(1).selectExpr("upper(cast(value AS STRING)) AS value"), 2),
        lambda df: df.union(df),
        lambda df: df.groupBy("key").count(),
        lambda df: df.orderBy("offset"),
    ],
    ids=["repartition", "another coalesce", "union", "aggregate", "order"],
)
def test_rule_07_rows_that_leave_their_task_are_refused(
    spark: SparkSession, job: JobSpec, tmp_path: Path, change: Callable[[DataFrame], DataFrame]
) -> None:
    ranges = outcome(spark, job, tmp_path, change=change)
    assert isinstance(ranges, JobError)
    assert ranges.reason is Reason.NOT_STATELESS
