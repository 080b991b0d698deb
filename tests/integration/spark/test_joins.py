"""Which joins the job accepts in a stateful pipeline, and that what is refused without Spark is refused by the job."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright.planning.sql_joins import StateTerms
from ackwright.planning.transform_sql import judge
from ackwright_stream import source, transform
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Format, StateSettings, Transform
from ackwright_stream.spark_internals import join_steps, outer_joins
from integration.support.raw_records import JOB
from minimal_job import minimal_job
from sql_texts import JOIN, JOIN_COLUMNS, JOINS, REFUSED_JOINS, joined, joined_sides

SCHEMA = ", ".join(f"{name} {kind}" for name, kind in JOIN_COLUMNS.items())
SCHEMA += ", created TIMESTAMP, tags MAP<STRING, STRING>, data STRUCT<id: STRING>"
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


_AT = "p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
_CASTS = "TRY_CAST(o.id AS BIGINT) = TRY_CAST(p.order_id AS BIGINT)"
_TAGS = "o.tags['id'] = p.tags['id']"


@pytest.mark.parametrize(
    "sql",
    [
        joined_sides("FULL"),
        joined_sides("FULL", f"o.id = p.order_id AND o.id IS NOT NULL AND o.amount = p.amount AND {_AT}"),
        joined_sides("FULL", "o.id = p.order_id AND o.id IS NOT NULL AND o.at = p.at"),
        joined_sides("LEFT", f"nullif(o.id, '') = nullif(p.order_id, '') AND {_AT}"),
        joined_sides("", f"nullif(o.id, '') = nullif(p.order_id, '') AND {_AT}"),
        *(joined_sides(kind, f"{_CASTS} AND o.id IS NOT NULL AND {_AT}") for kind in ("", "LEFT", "FULL")),
        *(joined_sides(kind, f"{_TAGS} AND o.tags IS NOT NULL AND {_AT}") for kind in ("", "LEFT", "FULL")),
        joined_sides("FULL", f"o.data.id = p.data.id AND o.data IS NOT NULL AND {_AT}"),
    ],
    ids=[
        "full", "second", "time", "left", "inner",
        "cast", "left-cast", "full-cast", "map", "left-map", "full-map", "struct",
    ],
)  # fmt: skip
def test_values_that_may_be_null_on_both_sides_are_refused(refusal: Refusal, sql: str) -> None:
    assert "Spark matches null with null" in (refusal(Transform(sql=sql), settings()) or "")


@pytest.mark.parametrize(
    "sql",
    [
        joined_sides("FULL", f"o.id <=> p.order_id AND {_AT}"),
        joined_sides("FULL", f"nvl(o.id, '') = p.order_id AND {_AT}"),
        joined_sides("LEFT", f"substr(o.id, 2) = substr(p.order_id, 2) AND {_AT}"),
        joined_sides("", f"nullif(o.id, '') = p.order_id AND {_AT}"),
        joined_sides("FULL", f"nullif(o.id, '') = p.order_id AND p.order_id IS NOT NULL AND {_AT}"),
        *(joined_sides(k, f"{_CASTS} AND TRY_CAST(o.id AS BIGINT) IS NOT NULL AND {_AT}") for k in ("LEFT", "FULL")),
        joined_sides("", f"{_TAGS} AND p.tags['id'] IS NOT NULL AND {_AT}"),
        joined_sides("LEFT", f"o.data.id = p.data.id AND {_AT}"),
        joined_sides("FULL", f"o.data.id = p.data.id AND o.data.id IS NOT NULL AND {_AT}"),
    ],
)
def test_values_that_are_not_null_on_one_side_are_accepted(refusal: Refusal, sql: str) -> None:
    assert refusal(Transform(sql=sql), settings()) is None


@pytest.mark.parametrize(
    ("condition", "matches"),
    [("o.id = p.id", True), ("o.id = p.id AND o.id IS NOT NULL", False)],
    ids=["control", "not-null"],
)
def test_spark_matches_null_with_null(spark: SparkSession, tmp_path: Path, condition: str, matches: bool) -> None:
    """Control: without the condition that one of the values is not null."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"id": null, "at": "2026-01-01T00:00:00Z"}')
    stream = spark.readStream.schema("id STRING, at TIMESTAMP").json(str(tmp_path / "in")).withWatermark("at", "1 day")
    join = stream.alias("o").join(stream.alias("p"), F.expr(f"{condition} AND o.at = p.at"), "full")
    name = f"nulls_{uuid.uuid4().hex[:8]}"
    writer = join.select(F.col("o.at"), F.col("p.at").alias("match")).writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True).start()
    query.awaitTermination()
    [row] = spark.table(name).collect()  # the record of p alone comes when the watermark has passed it
    assert row["at"] is not None
    assert (row["match"] is not None) is matches


_TIMED = "o.id = p.order_id AND o.id IS NOT NULL AND p.at"


@pytest.mark.parametrize("one_table", [False, True], ids=["sides", "one-table"])
@pytest.mark.parametrize(
    "condition",
    [
        f"{_TIMED} BETWEEN o.at AND o.at + INTERVAL 1 HOUR",
        f"{_TIMED} > o.at - INTERVAL 90 MINUTES AND p.at < o.at + INTERVAL 1 DAY 2 HOURS",
        f"{_TIMED} + INTERVAL 5 MINUTES >= o.at AND p.at - INTERVAL 5 MINUTES <= o.at + INTERVAL 1 MINUTE",
        f"{_TIMED} < o.at + INTERVAL 1 HOUR AND p.at <= o.at + INTERVAL 2 HOURS AND NOT (p.at < o.at)",
        f"{_TIMED} = o.at AND o.at IS NOT NULL",
        f"{_TIMED} = o.at AND o.at IS NOT NULL AND p.at <= o.created",
    ],
)
def test_the_audit_ends_a_row_when_spark_does(
    spark: SparkSession, records: DataFrame, *, one_table: bool, condition: str
) -> None:
    """The audit computes by itself how long Spark stores a row."""
    sql = joined_sides("FULL", condition)
    if one_table:
        sql = f"WITH source AS (SELECT * FROM source) {sql}"  # noqa: S608
    output = transform.run_transform(spark, records, Transform(sql=sql), settings())
    ends, of_spark = outer_joins.row_ends(output), join_steps.join_state(output)
    assert ends is not None
    assert of_spark is not None
    expected = [join_steps.ANY_WATERMARK * 1_000 - end.microseconds for end in ends]
    assert [of_spark.left_end, of_spark.right_end] == expected


@pytest.mark.parametrize(
    "condition",
    [
        f"{_TIMED} = o.at + INTERVAL 1 HOUR AND o.at IS NOT NULL",
        f"{_TIMED} - INTERVAL 1 HOUR = o.at AND p.at > o.at AND p.at IS NOT NULL",
    ],
)
def test_an_equality_of_shifted_event_times_is_not_judged(
    spark: SparkSession, records: DataFrame, condition: str
) -> None:
    """Spark then compares another value than the event time with the watermark."""
    output = transform.run_transform(spark, records, Transform(sql=joined_sides("FULL", condition)), settings())
    assert outer_joins.row_ends(output) is None


@pytest.mark.parametrize(
    ("condition", "judged"),
    [
        ("p.at <= o.created", True),
        ("CAST(p.at AS DOUBLE) <= CAST(o.at AS DOUBLE) + 7200", False),
        ("p.at = o.created AND p.at IS NOT NULL", False),
    ],
    ids=["control", "wider-range", "another-equality"],
)
def test_a_range_is_not_judged_if_another_condition_moves_its_end(
    spark: SparkSession, records: DataFrame, condition: str, judged: bool
) -> None:
    within = f"{_TIMED} BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
    sql = joined_sides("FULL", f"{within} AND {condition}")
    output = transform.run_transform(spark, records, Transform(sql=sql), settings())
    of_spark = join_steps.join_state(output)
    assert of_spark is not None
    hour = join_steps.ANY_WATERMARK * 1_000 - 3_600_001_000
    assert (of_spark.left_end == hour) is judged
    assert (outer_joins.row_ends(output) is not None) is judged


def test_a_range_that_the_audit_cannot_compute_is_not_judged(spark: SparkSession, records: DataFrame) -> None:
    within = "o.id = p.order_id AND CAST(p.at AS DOUBLE) >= CAST(o.at AS DOUBLE)"
    condition = f"{within} AND CAST(p.at AS DOUBLE) <= CAST(o.at AS DOUBLE) + 60"
    for kind, judged in (("LEFT", False), ("", True), ("LEFT SEMI", True)):
        sql = joined_sides(kind, condition)
        output = transform.run_transform(spark, records, Transform(sql=sql), settings())
        assert (outer_joins.row_ends(output) is not None) is judged


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


@pytest.mark.parametrize("kind", ["", "LEFT", "RIGHT", "LEFT SEMI"])
def test_what_is_refused_without_spark_is_refused_by_the_job(refusal: Refusal, kind: str) -> None:
    """Control: some of the conditions are refused by neither."""
    parts = ["p.at >= o.at", "p.at < o.at + INTERVAL 5 MINUTES", "o.amount = p.amount", "p.at > '2026-01-01'"]
    conditions = [[part for i, part in enumerate(parts) if number >> i & 1] for number in range(1, 1 << len(parts))]
    texts = [joined(" AND ".join(condition), kind) for condition in conditions]
    if kind == "LEFT SEMI":
        texts = [sql.replace("p.amount AS value", "o.amount AS value") for sql in texts]
    refused = {sql for sql in texts if judge(sql, None, StateTerms("at", append=True)).problems}
    accepted = {sql for sql in texts if refusal(Transform(sql=sql), settings()) is None}
    assert refused & accepted == set()
    assert refused | accepted == set(texts)
    assert len(accepted) == 4
