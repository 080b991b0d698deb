"""Which columns and rows of an output depend on aggregate functions, for the audit."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.spark_internals import aggregates
from ackwright_stream.spark_internals.rounding import have_large_averages, largest_difference, rounded_columns

ROWS = "VALUES ('a', 1, 1L, 0.1D), ('a', 2, 1L, 0.2D), ('b', 3, 2L, 0.3D) AS source (name, n, at, x)"


def of(spark: SparkSession, select: str, more: str = "") -> DataFrame:
    return spark.sql(f"SELECT name, {select} FROM {ROWS} GROUP BY name {more}")  # noqa: S608


@pytest.mark.parametrize(
    ("select", "columns"),
    [
        (
            "count(*) AS a, sum(n) AS b, avg(n) AS c, min(x) AS d, count_if(n > 1) AS e, bool_or(n > 1) AS f, "
            "approx_count_distinct(n) AS g, median(n) AS h, percentile(n, 0.5) AS i, sum(x) AS j, stddev(x) AS k, "
            "bit_xor(n) AS l, any(n > 1) AS m, every(n > 1) AS o",
            set(),
        ),
        ("first(n) AS f, last(n) AS l, any_value(n) AS v, count(*) AS n", {"f", "l", "v"}),
        ("collect_list(n) AS c, collect_set(n) AS s, array_sort(collect_set(n)) AS t", {"c", "s", "t"}),
        ("percentile_approx(n, 0.5) AS p, mode(n) AS m, listagg(name) AS g", {"p", "m", "g"}),
        ("kurtosis(x) AS k, covar_pop(x, n) AS c, regr_slope(x, n) AS r", {"k", "c", "r"}),
        ("max_by(n, at) AS m, count(*) AS c", {"m"}),  # 1 and 2 are both of the latest time
        ("max_by(at, n) AS m, min_by(x, n) AS i", set()),
        ("min_by(map('k', n), at) AS m", {"m"}),
        ("concat(name, CAST(first(n) AS STRING)) AS c, count(*) + 1 AS d", {"c"}),
    ],
)
def test_what_depends_on_the_order_is_followed_to_the_columns(
    spark: SparkSession, select: str, columns: set[str]
) -> None:
    assert aggregates.of_order(spark, of(spark, select)) == aggregates.Dependent(frozenset(columns), rows=False)


def test_it_is_followed_through_further_steps_and_conditions(spark: SparkSession) -> None:
    inner = of(spark, "first(n) AS f, count(*) AS c").selectExpr("name", "f + c AS s", "c")
    assert aggregates.of_order(spark, inner).columns == {"s"}
    assert not aggregates.of_order(spark, inner.filter("c > 1")).rows
    assert aggregates.of_order(spark, inner.filter("s > 1")).rows
    assert aggregates.of_order(spark, of(spark, "count(*) AS c", "HAVING first(n) > 1")).rows


def test_counts_of_what_is_read_are_no_conditions(spark: SparkSession) -> None:
    spark.sql(f"SELECT * FROM {ROWS}").observe("sent", F.count(F.lit(1)).alias("n")).createOrReplaceTempView("read")  # noqa: S608
    assert not aggregates.of_results(spark.sql("SELECT name, count(*) AS c FROM read GROUP BY name")).rows


@pytest.mark.parametrize(
    ("more", "rows"),
    [("", False), ("HAVING count(*) < 2", True), ("HAVING sum(n) > 1", True), ("HAVING name > 'a'", False)],
)
def test_conditions_on_results_are_distinguished_from_those_on_groups(
    spark: SparkSession, more: str, rows: bool
) -> None:
    assert aggregates.of_results(of(spark, "count(*) AS c", more)).rows is rows


def test_all_groups_are_there_without_the_condition_behind_them(spark: SparkSession) -> None:
    frame = spark.sql(f"SELECT name FROM {ROWS} WHERE n < 3 GROUP BY name HAVING count(*) > 5")  # noqa: S608
    assert [row["name"] for row in aggregates.without_conditions(spark, frame).collect()] == ["a"]


@pytest.mark.parametrize(
    ("select", "large"),
    [
        ("avg(n) AS a", False),
        ("avg(n + 9007199254740992) AS a", True),
        ("avg(CAST(n AS SMALLINT)) AS a", False),
        ("avg(n + CAST(9007199254740992 AS DECIMAL(20))) AS a", False),
        ("sum(n + 9007199254740992) AS a", False),
        ("avg(x) AS a", False),  # rounds, whatever its numbers are
    ],
)
def test_averages_of_whole_numbers_are_rounded_if_their_sums_are_large(
    spark: SparkSession, select: str, large: bool
) -> None:
    frame = of(spark, select)
    assert have_large_averages(spark, frame) is large
    if large:
        assert set(rounded_columns(frame, large=True) or ()) == {"a"}
        assert rounded_columns(frame) == {}
        assert 0 < largest_difference(spark, frame, large=True) < 1e-9
