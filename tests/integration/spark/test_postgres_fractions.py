"""Numbers that two runs round differently, compared by a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.postgres import TableReader
from ackwright_stream.spark_internals.rounding import TOLERANCE, TOLERANCE_OF_FLOAT
from integration.support.postgres import Database
from integration.support.postgres_stores import job

EXPECTED = """
    SELECT * FROM VALUES ('a', 0.6D, FLOAT(0.1)), ('b', 2D, FLOAT(3)), ('c', CAST(NULL AS DOUBLE), FLOAT(1)),
    ('tiny', 5e-324D, FLOAT(0)), ('huge', 1e308D, FLOAT(0)) AS rows (key, v, r)
"""
ROWS = "('a', 0.6000000000000001, 0.10000001), ('b', 2, 3), ('c', NULL, 1), ('tiny', 5e-324, 0), ('huge', 1e308, 0)"
TOLERANCES = {"v": TOLERANCE, "r": TOLERANCE_OF_FLOAT}


@pytest.mark.parametrize("mode", [{}, {"upsert": True, "key": ("key",)}], ids=["append", "upsert"])
def test_numbers_with_a_tolerance_are_compared_by_the_rest_of_their_row(
    spark: SparkSession, database: Database, tmp_path: Path, mode: dict[str, Any]
) -> None:
    database.sql(f"CREATE TABLE rows (key text PRIMARY KEY, v float8, r real); INSERT INTO rows VALUES {ROWS}")  # noqa: S608

    def faults(tolerances: dict[str, float]) -> tuple[int, int, int]:
        frame = spark.sql(EXPECTED).observe("sent", F.count(F.lit(1)).alias("records"))
        with TableReader(job(tmp_path, database, **mode)) as reader:
            c = reader.compare(Output(frame, [], [], tolerances=tolerances), None, [], 5)
        return c.lost, c.duplicated, c.unexpected

    assert faults({}) == (1, 0, 1)
    assert faults(TOLERANCES) == (0, 0, 0)
    for change, expected in [
        ("UPDATE rows SET v = v * (1 + 1e-6) WHERE key = 'b'", (1, 0, 1)),
        ("UPDATE rows SET r = r * 1.001 WHERE key = 'a'", (2, 0, 2)),
        ("UPDATE rows SET v = -v WHERE key = 'huge'", (3, 0, 3)),
        ("UPDATE rows SET v = 1 WHERE key = 'c'", (4, 0, 4)),
        ("DELETE FROM rows WHERE key = 'tiny'", (5, 0, 4)),
    ]:
        database.sql(change)
        assert faults(TOLERANCES) == expected, change
