"""Hashes of rows, computed by Spark: which rows have the same sum, and which do not."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream.row_hashes import split, total, with_hashes

ROWS = "SELECT * FROM VALUES ('a', X'01', 1), ('b', NULL, 2), (NULL, X'02', NULL) AS t(key, value, `a.b`)"


def sums(rows: DataFrame) -> bytes:
    batches = with_hashes(rows).toArrow().to_batches()
    assert all(split(batch)[0].schema.names == rows.columns for batch in batches)
    return total(split(batch)[1] for batch in batches)


def test_rows_in_another_order_and_in_other_tasks_have_the_same_sums(spark: SparkSession) -> None:
    rows = spark.sql(ROWS)
    assert sums(rows) == sums(rows.orderBy("value")) == sums(rows.repartition(3))
    assert sums(rows) != sums(rows.union(rows.limit(1)))
    first, second = sums(rows)[:8], sums(rows)[8:]
    assert first != second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NULL, 'a'", "'a', NULL"),
        ("'', 'a'", "NULL, 'a'"),
        ("'a', 'b'", "'b', 'a'"),
        ("1, array('a', 'b')", "1, array('b', 'a')"),
        ("1, named_struct('m', map('k', TIMESTAMP_MICROS(1)))", "1, named_struct('m', map('k', TIMESTAMP_MICROS(2)))"),
        ("1, array(map(1, X'00'))", "1, array(map(1, X'01'))"),
        ("1, TIMESTAMP_MICROS(1L << 62)", "1, TIMESTAMP_MICROS((1L << 62) + 1)"),
        ("1, DATE '9999-12-31' + 1", "1, DATE '9999-12-31' + 2"),
        ("1, INTERVAL '1' DAY", "1, INTERVAL '2' DAY"),
        ("1, 1.10BD", "1, 1.11BD"),
        ("1, CAST(NULL AS INT)", "CAST(NULL AS INT), CAST(NULL AS INT)"),
    ],
)
def test_other_rows_have_other_sums(spark: SparkSession, one: str, other: str) -> None:
    first, second = (spark.range(1).selectExpr(f"inline(array(struct({values})))") for values in (one, other))
    assert sums(first) != sums(second)
