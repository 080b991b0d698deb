"""Which columns of an output the audit compares within a tolerance, and which rows then belong together."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_fractions import is_ambiguous, with_expected_numbers
from ackwright_stream.spark_internals.rounding import (
    TOLERANCE,
    TOLERANCE_OF_FLOAT,
    largest_difference,
    rounded_columns,
)

ROWS = "VALUES ('a', 0.1D, 1L, 1BD), ('a', 0.2D, 2L, 2BD), ('b', 0.3D, 3L, 3BD) AS source (name, x, n, d)"


def of(spark: SparkSession, select: str, more: str = "") -> DataFrame:
    return spark.sql(f"SELECT name, {select} FROM {ROWS} GROUP BY name {more}")  # noqa: S608


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        ("count(x) AS c, max(x) AS m, sum(n) AS s, sum(d) AS t, avg(d) AS a", {}),
        ("sum(x) AS s", {"s": TOLERANCE}),
        ("avg(x) AS a, min(x) AS m", {"a": TOLERANCE}),
        ("avg(n) AS a", {}),  # of whole numbers
        ("sum(CAST(x AS FLOAT)) AS s", {"s": TOLERANCE}),
        ("CAST(sum(x) AS FLOAT) AS s", {"s": TOLERANCE_OF_FLOAT}),
        ("coalesce(sum(x), 0D) AS s, CAST(avg(x) AS STRING) AS t", {"s": TOLERANCE, "t": TOLERANCE}),
        ("to_json(struct(sum(x) AS s, count(*) AS n)) AS value", {"value": TOLERANCE}),
        ("sum(x) + 1 AS s", None),
        ("round(sum(x), 2) AS s", None),
        ("CAST(avg(x) AS INT) AS s", None),
        ("if(sum(x) > 1, 'high', 'low') AS s", None),
        ("concat(CAST(sum(x) AS STRING), ' m') AS s", None),
        ("stddev(x) AS s", None),
        ("sum(DISTINCT x) AS s", None),
        ("sum(x) FILTER (WHERE n > 1) AS s", None),
    ],
)
def test_sums_of_fractions_are_followed_to_the_columns(
    spark: SparkSession, select: str, columns: dict[str, float] | None
) -> None:
    assert rounded_columns(of(spark, select)) == columns


def test_they_are_followed_through_further_steps_and_not_through_a_condition(spark: SparkSession) -> None:
    frame = of(spark, "sum(x) AS s").filter("name = 'a'").select(F.col("s").alias("t")).alias("o").select("o.t")
    assert rounded_columns(frame) == {"t": TOLERANCE}
    assert rounded_columns(frame.filter("t > 1")) is None
    assert rounded_columns(of(spark, "count(*) AS n", "HAVING sum(x) > 1")) is None


@pytest.mark.parametrize(
    ("values", "is_small"),
    [
        ("(0.1D), (0.2D), (0.3D)", True),
        ("(0.1D), (NULL), (-0.3D)", True),
        ("(0D), (0D)", True),
        ("(NULL)", True),
        ("(1D), (-1D)", False),
        ("(1e9D), (-1e9D), (0.1D)", False),
        ("(DOUBLE('NaN')), (1D)", False),
        ("(DOUBLE('Infinity')), (1D)", False),
    ],
)
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_numbers_that_cancel_out_differ_by_more(
    spark: SparkSession, function: str, values: str, *, is_small: bool
) -> None:
    output = spark.sql(f"SELECT {function}(x) AS s, count(*) AS n FROM VALUES {values} AS source (x)")  # noqa: S608
    assert (largest_difference(spark, output) <= TOLERANCE) is is_small


def test_the_bound_grows_with_the_number_of_records_and_is_that_of_the_worst_group(spark: SparkSession) -> None:
    output = spark.range(1_000).selectExpr("id % 2 AS g", "0.1D AS x").groupBy("g").agg(F.sum("x"), F.avg("x"))
    assert largest_difference(spark, output) == pytest.approx(2 * 500 * 2.0**-53)


EXPECTED = "SELECT * FROM VALUES ('a', 10, 0.6D), ('a', 20, 0.6D), ('b', NULL, 2D), ('c', 1, NULL) AS rows (name, w, s)"


def replaced(spark: SparkSession, actual: str) -> list[tuple[object, ...]]:
    frame = spark.sql(f"SELECT * FROM VALUES {actual} AS rows (name, w, s)")  # noqa: S608
    expected = spark.sql(EXPECTED)
    result = with_expected_numbers(frame, expected, {"s": TOLERANCE}, ["name", "w", "s"])
    assert result.columns == frame.columns
    return [tuple(row) for row in result.collect()]


@pytest.mark.parametrize(
    ("actual", "number"),
    [
        ("('a', 10, 0.6000000000000001D)", 0.6),
        ("('a', 10, 0.6000000003D)", 0.6),
        ("('a', 10, 0.600000001D)", 0.600000001),
        ("('b', NULL, 2.000000001D)", 2.0),
        ("('d', 10, 0.6000000000000001D)", 0.6000000000000001),
        ("('c', 1, 1D)", 1.0),
        ("('a', 10, CAST(NULL AS DOUBLE))", None),
    ],
)
def test_a_number_within_the_tolerance_is_that_of_its_row(spark: SparkSession, actual: str, number: float) -> None:
    [row] = replaced(spark, actual)
    assert row[2] == number


def test_a_row_that_is_there_twice_stays_twice(spark: SparkSession) -> None:
    rows = replaced(spark, "('a', 10, 0.6000000000000001D), ('a', 10, 0.6D)")
    assert rows == [("a", 10, 0.6)] * 2


def test_rows_that_only_numbers_distinguish_are_ambiguous(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES ('a', 1D), ('a', 2D), ('b', 1D) AS rows (name, s)")
    assert is_ambiguous(rows, {"s": TOLERANCE})
    assert not is_ambiguous(rows.filter("s = 1"), {"s": TOLERANCE})
    assert not is_ambiguous(rows.withColumn("s", F.lit(1.0)), {"s": TOLERANCE})
