"""How many rows Spark hands to Python at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from integration.support.pipelines import document, job_of

LIMIT = "spark.sql.execution.arrow.maxBytesPerBatch"
KIB, MIB = 1024, 1024 * 1024


@pytest.fixture
def limited(spark: SparkSession, tmp_path: Path) -> Iterator[SparkSession]:
    """The session with the limit that each pipeline has."""
    job = job_of(document("127.0.0.1:9092", "parts", "exactly-once", "in", "out"), tmp_path)
    spark.conf.set(LIMIT, job.spark[LIMIT])
    yield spark
    spark.conf.unset(LIMIT)


def parts(spark: SparkSession, count: int, size: int) -> list[tuple[int, int]]:
    """The rows and bytes of each part of one task's input of so many rows with so many bytes."""

    def measured(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in rows:
            yield pa.RecordBatch.from_pydict({"rows": [part.num_rows], "bytes": [part.nbytes]})

    rows = spark.range(0, count, 1, 1).selectExpr(f"repeat('x', {size}) AS value")
    return [(row["rows"], row["bytes"]) for row in rows.mapInArrow(measured, "rows long, bytes long").collect()]


def test_a_part_of_the_rows_has_two_mebibytes(limited: SparkSession) -> None:
    measured = parts(limited, 8_000, KIB)
    assert sum(rows for rows, _ in measured) == 8_000
    assert all(MIB < size < 2.5 * MIB for _, size in measured[:-1]), measured
    assert len(measured) == 4


def test_larger_rows_come_one_by_one(limited: SparkSession) -> None:
    assert [rows for rows, _ in parts(limited, 3, 3 * MIB)] == [1, 1, 1]


def test_control_without_the_limit_the_rows_are_one_part(spark: SparkSession) -> None:
    assert [rows for rows, _ in parts(spark, 8_000, KIB)] == [8_000]
