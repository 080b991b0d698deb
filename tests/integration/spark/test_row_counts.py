"""The number of rows in Spark's physical plan equals the number of rows delivered.

Real Spark and brokers; one task of each batch fails once.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream import row_counts, source, transform
from ackwright_stream.jobspec import Format, JobSpec, KafkaSink
from ackwright_stream.sinks.kafka.columns import present_columns, to_sink_columns
from ackwright_stream.spark_internals.execution import last_execution
from integration.support.pipelines import create_topics, document, feed, job_of

PARTITIONS, EACH = 2, 60


@pytest.fixture(scope="module")
def job(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> JobSpec:
    name = f"counts-{uuid.uuid4().hex[:8]}"
    create_topics(kafka.bootstrap_servers, name, partitions=PARTITIONS)
    feed(kafka.bootstrap_servers, name, PARTITIONS, 0, EACH)
    return job_of(
        document(kafka.bootstrap_servers, name, "at-least-once", name, f"{name}-out"), tmp_path_factory.mktemp("counts")
    )


def streamed(spark: SparkSession, job: JobSpec, directory: Path, out: DataFrame) -> tuple[list[int | None], int]:
    """The plan's count for each batch, and the number of rows delivered."""
    counts: list[int | None] = []
    rows = 0

    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows_ in batches:
            yield rows_.select(["value"])
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and context.partitionId() == 0:
            raise RuntimeError("as a broker's fault would have it")

    def deliver(batch: DataFrame, _: int) -> None:
        nonlocal rows
        rows += len(batch.mapInArrow(fails_once, "value binary").collect())
        running = spark.streams.active[0]
        counts.append(row_counts.rows_written(last_execution(running)))

    query = (
        out.writeStream.foreachBatch(deliver)
        .option("checkpointLocation", str(directory))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return counts, rows


def records(spark: SparkSession, job: JobSpec, sql: str, source_format: Format = Format.BINARY) -> DataFrame:
    """The rows that the sink gets from this SQL, in batches of 50 offsets."""
    options = {**source.reader_options(job), "subscribe": job.source.topics[0], "maxOffsetsPerTrigger": "50"}
    raw = spark.readStream.format("kafka").options(**options).option("startingOffsets", "earliest").load()
    view = source.parse(raw, replace(job.source, format=source_format))
    view.createOrReplaceTempView(transform.VIEW)
    sink = job.sink_of(KafkaSink)
    return present_columns(to_sink_columns(spark.sql(sql), sink), sink)


@pytest.mark.parametrize(
    ("sql", "share"),
    [
        ("SELECT key, value FROM source", 1.0),
        ("SELECT value FROM source WHERE kafka.offset % 3 = 0", 1 / 3),
        ("SELECT value FROM (SELECT * FROM source WHERE kafka.offset % 2 = 0) WHERE kafka.offset % 3 = 0", 1 / 6),
        (
            "SELECT CAST(x AS BINARY) AS value "
            "FROM (SELECT explode(array('a', 'b', 'c')) AS x FROM source WHERE kafka.offset < 10)",
            0.5,
        ),
        (
            "SELECT CAST(x AS BINARY) AS value "
            "FROM source LATERAL VIEW explode(array('a', 'b')) AS x WHERE kafka.partition = 1",
            1.0,
        ),
        ("SELECT value FROM source WHERE false", 0.0),
        (
            "SELECT CAST(CAST(thrice(kafka.offset) AS STRING) AS BINARY) AS value "
            "FROM source WHERE thrice(kafka.offset) > 29",
            5 / 6,
        ),
    ],
)
def test_the_physical_plan_reports_the_number_of_rows(
    spark: SparkSession, job: JobSpec, tmp_path: Path, sql: str, share: float
) -> None:
    spark.udf.register("thrice", lambda n: 3 * n, "long")
    for source_format in (Format.BINARY, Format.STRING):
        out = records(spark, job, sql, source_format)
        assert row_counts.counted_by_spark(out)
        counts, rows = streamed(spark, job, tmp_path / source_format, out)
        assert sum(n for n in counts if n is not None) == rows == round(PARTITIONS * EACH * share)
        assert len(counts) > 1  # each batch on its own


def in_arrow(df: DataFrame) -> DataFrame:
    def some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows_ in batches:
            yield rows_.slice(0, 1)

    return df.mapInArrow(some, "value binary")


@pytest.mark.parametrize("change", [in_arrow, lambda df: df.distinct(), lambda df: df.union(df)])
def test_row_counts_of_unknown_operators_are_not_used(
    spark: SparkSession, job: JobSpec, change: Callable[[DataFrame], DataFrame]
) -> None:
    out = change(records(spark, job, "SELECT value FROM source"))
    assert not row_counts.counted_by_spark(out)


def test_control_an_unknown_operator_has_no_row_count(spark: SparkSession, job: JobSpec, tmp_path: Path) -> None:
    """An unknown operator without a row count: the count of the operator below it would be wrong."""
    out = in_arrow(records(spark, job, "SELECT value FROM source")).select(F.col("value"))
    counts, rows = streamed(spark, job, tmp_path, out)
    assert rows < PARTITIONS * EACH
    assert counts == [None] * len(counts), json.dumps(counts)
