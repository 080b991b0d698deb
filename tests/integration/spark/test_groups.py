"""What `ackwright plan` refuses of groups without Spark, the job refuses, too, and Spark has no groups without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, StateSettings, Transform
from integration.support.raw_records import JOB
from sql_texts import GROUPS, REFUSED_GROUPS, REFUSED_UPDATES

_BESIDE, _ALONE = (sql for sql, *_ in REFUSED_UPDATES)


@pytest.fixture
def refusal(spark: SparkSession) -> Callable[[str, str], str | None]:
    """refusal(sql, output mode): why the job refuses it; None if it does not."""
    of_source = replace(JOB.source, format=Format.JSON, schema="id STRING, at TIMESTAMP, sent TIMESTAMP")
    records = source.parse(source.read_stream(spark, JOB, "earliest"), of_source)

    def refusal_(sql: str, mode: str) -> str | None:
        state = StateSettings(1, "/nowhere", mode, "at", "5 seconds", 1_000)
        try:
            transform.run_transform(spark, records, Transform(sql=sql), state)
        except JobError as e:
            return e.message
        return None

    return refusal_


@pytest.mark.parametrize("sql", GROUPS)
def test_the_job_takes_groups_that_the_watermark_ends(refusal: Callable[[str, str], str | None], sql: str) -> None:
    assert refusal(sql, "append") is None


@pytest.mark.parametrize("sql", [sql for sql, *_ in REFUSED_GROUPS])
def test_the_job_refuses_groups_that_plan_refuses(refusal: Callable[[str, str], str | None], sql: str) -> None:
    words = "groups by session_window alone" if "session_window" in sql else "no watermark ends its groups"
    assert words in str(refusal(sql, "append"))


@pytest.mark.parametrize("sql", [sql for sql, *_ in REFUSED_UPDATES])
def test_the_job_refuses_session_windows_with_update(refusal: Callable[[str, str], str | None], sql: str) -> None:
    assert "session_window" in str(refusal(sql, "update"))


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str, str], None]]:
    """run(sql, output mode) runs micro-batches of Spark's own source of test records."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", "5").load()
    records = rate.selectExpr("CAST(value % 2 AS STRING) AS id", "timestamp AS at").withWatermark("at", "5 seconds")

    def run_(sql: str, mode: str) -> None:
        records.createOrReplaceTempView("source")
        output: DataFrame = spark.sql(sql)
        writer = output.writeStream.outputMode(mode).option("checkpointLocation", str(tmp_path / mode))
        query = writer.foreachBatch(lambda rows, _: rows.collect()).trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        finally:
            query.stop()

    yield run_
    spark.catalog.dropTempView("source")


@pytest.mark.parametrize(
    ("sql", "mode", "words"),
    [(_ALONE, "append", "Global aggregation with session window"), (_BESIDE, "update", "session window")],
)
def test_control_spark_refuses_these_session_windows(
    run: Callable[[str, str], None], sql: str, mode: str, words: str
) -> None:
    with pytest.raises(PySparkException, match=words):
        run(sql, mode)


def test_control_spark_takes_a_session_window_beside_a_column(run: Callable[[str, str], None]) -> None:
    run(_BESIDE, "append")
