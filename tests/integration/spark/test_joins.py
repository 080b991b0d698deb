"""Which joins the job accepts in a stateful pipeline, and that what is refused without Spark is refused by the job."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright.planning.sql_joins import StateTerms
from ackwright.planning.transform_sql import judge
from ackwright_stream import source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, StateSettings, Transform
from integration.support.raw_records import JOB
from minimal_job import minimal_job
from sql_texts import JOIN, JOIN_COLUMNS, JOINS, REFUSED_JOINS, joined

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in JOIN_COLUMNS.items())
Refusal = Callable[[Transform, StateSettings], str | None]


def settings(event_time: str | None = "at", mode: str = "append") -> StateSettings:
    return StateSettings(
        partitions=2,
        checkpoint="/nowhere",
        output_mode=mode,
        event_time=event_time,
        watermark_delay="10 seconds" if event_time else None,
        batch_bytes=1_000,
    )


@pytest.fixture(scope="module")
def records(spark: SparkSession) -> DataFrame:
    """The view `source` of a stream."""
    job = minimal_job(format=Format.JSON, schema=SCHEMA)
    return source.parse(source.read_stream(spark, JOB, "earliest"), job.source)


@pytest.fixture(scope="module")
def refusal(spark: SparkSession, records: DataFrame) -> Refusal:
    """Why the job refuses a transform; None if it does not."""

    def refusal_(of: Transform, state: StateSettings) -> str | None:
        try:
            transform.run_transform(spark, records, of, state)
        except JobError as e:
            return f"{e.reason}: {e.message}"
        return None

    return refusal_


@pytest.mark.parametrize("sql", JOINS)
def test_a_join_within_a_range_of_time_is_accepted(refusal: Refusal, sql: str) -> None:
    assert refusal(Transform(sql=sql), settings()) is None


@pytest.mark.parametrize(("sql", "at", "problem"), REFUSED_JOINS)
def test_another_join_is_refused_by_its_name(refusal: Refusal, sql: str, at: str, problem: str) -> None:
    assert problem in (refusal(Transform(sql=sql), settings()) or "")


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        ("p.at >= o.at AND p.at <= date_trunc('hour', o.at) + INTERVAL 1 HOUR", "forever"),
        ("(p.at = o.at OR p.amount = 'x')", "forever"),
        ("p.at BETWEEN o.at AND o.at + INTERVAL 1 MONTH", "forever"),  # not always as long
        ("p.at >= o.at", "its left side forever"),
        ("p.at <= o.at", "its right side forever"),
    ],
)
def test_state_that_grows_for_ever_is_refused(refusal: Refusal, condition: str, problem: str) -> None:
    assert problem in (refusal(Transform(sql=joined(condition)), settings()) or "")


def test_windows_are_no_event_time_of_a_join(refusal: Refusal) -> None:
    sql = """
        WITH windows AS (SELECT id, window(at, '1 minute') AS w FROM source)
        SELECT o.id AS value FROM windows o JOIN windows p ON o.id = p.id AND o.w = p.w
    """
    assert "by windows" in (refusal(Transform(sql=sql), settings()) or "")


@pytest.mark.parametrize(
    ("state", "problem"),
    [(settings(event_time=None), "without a watermark"), (settings(mode="update"), "state.outputMode update")],
)
def test_a_join_needs_a_watermark_and_append(refusal: Refusal, state: StateSettings, problem: str) -> None:
    assert problem in (refusal(Transform(sql=JOIN), state) or "")


PYTHON = """
from pyspark.sql import functions as F


def bounded(source):
    o, p = source.alias("o"), source.alias("p")
    within = F.expr("o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR")
    return o.join(p, within).select(F.col("o.id").alias("key"), F.col("p.amount").alias("value"))


def endless(source):
    o, p = source.alias("o"), source.alias("p")
    return o.join(p, F.expr("o.id = p.order_id")).select("o.id")


def timed_again(source):
    o, p = source.alias("o"), source.withWatermark("at", "1 minute").alias("p")
    return o.join(p, F.expr("o.id = p.order_id AND o.at = p.at")).select("o.id")


def of_table(source):
    table = source.sparkSession.createDataFrame([("a",)], "id STRING")
    return source.join(table, "id").select("id")
"""


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("bounded", None),
        ("endless", "forever"),
        ("timed_again", "sets a watermark itself"),
        ("of_table", "no record of the source"),
    ],
)
def test_joins_of_python_are_judged_like_those_of_sql(
    refusal: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, problem: str | None
) -> None:
    (tmp_path / "joining.py").write_text(PYTHON)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "joining", raising=False)
    message = refusal(Transform(module="joining", function=function), settings())
    assert message is None if problem is None else problem in (message or "")


def test_what_is_refused_without_spark_is_refused_by_the_job(refusal: Refusal) -> None:
    """Control: some of the conditions are refused by neither."""
    parts = ["p.at >= o.at", "p.at < o.at + INTERVAL 5 MINUTES", "o.amount = p.amount", "p.at > '2026-01-01'"]
    conditions = [[part for i, part in enumerate(parts) if number >> i & 1] for number in range(1, 1 << len(parts))]
    texts = [joined(" AND ".join(condition)) for condition in conditions]
    refused = {sql for sql in texts if judge(sql, None, StateTerms("at", append=True)).problems}
    accepted = {sql for sql in texts if refusal(Transform(sql=sql), settings()) is None}
    assert refused & accepted == set()
    assert refused | accepted == set(texts)
    assert len(accepted) == 4
