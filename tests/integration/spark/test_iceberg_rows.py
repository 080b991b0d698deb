"""Rows of real Spark in a real Iceberg table: as other programs read them, and as the audit compares them.

pyiceberg plays the programs that damage the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.iceberg import IcebergReader
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from integration.support.iceberg_stores import Table, job
from integration.support.typed_rows import COUNT, LAYOUTS, NAMED, ROWS, content, content_of, deliver


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "warehouse")


@pytest.fixture(params=list(LAYOUTS.values()), ids=list(LAYOUTS))
def spec(table: Table, tmp_path: Path, request: pytest.FixtureRequest) -> JobSpec:
    return job(tmp_path, table, partition_columns=request.param)


def compared(spark: SparkSession, spec: JobSpec, frame: DataFrame, late: DataFrame | None = None) -> Comparison:
    required = frame.observe("sent", F.count(F.lit(1)).alias("records"))
    with IcebergReader(spark, spec) as reader:
        assert reader.positions([("in", 0)]) == {("in", 0): COUNT}
        assert {lane: start.start for lane, start in reader.lane_starts().items()} == {("in", 0): 0}
        of_late = None if late is None else Output(late, [], [])
        return reader.compare(Output(required, [], []), of_late, [], COUNT)


def counts(comparison: Comparison) -> tuple[int, int, int, int, int]:
    c = comparison
    return c.expected, c.delivered, c.lost, c.duplicated, c.unexpected


def test_rows_of_every_type_are_read_and_compared_as_they_were(
    spark: SparkSession, table: Table, spec: JobSpec
) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame, IcebergStore)
    assert content(table.handle().scan().to_arrow()) == content_of(frame)
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)


def test_other_programs_prune_files_by_partitions_and_bounds(spark: SparkSession, table: Table, spec: JobSpec) -> None:
    deliver(spec, spark.sql(ROWS), IcebergStore)
    for condition, n in (("day = '2026-03-08'", COUNT), ("day = '2026-03-09'", 0), ("id > 1", 3), ("s is null", 1)):
        assert table.handle().scan(condition).to_arrow().num_rows == n, condition
    assert list(table.handle().scan("id > 3").plan_files()) == []


def test_the_audit_reports_each_kind_of_damage(spark: SparkSession, table: Table, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame, IcebergStore)
    rows = table.handle().scan().to_arrow()
    table.handle().append(rows.filter(pa.compute.equal(rows["id"], 1)))
    assert counts(compared(spark, spec, frame)) == (4, 5, 0, 1, 0)
    table.handle().append(rows.slice(0, 1).set_column(0, "id", pa.array([77], pa.int32())))
    assert counts(compared(spark, spec, frame)) == (4, 6, 0, 1, 1)
    assert counts(compared(spark, spec, frame, frame.where("id = 1"))) == (4, 6, 0, 0, 1)
    table.handle().delete("id = 2")
    report = compared(spark, spec, frame)
    assert counts(report) == (4, 4, 2, 1, 1)
    lost = next(o for o in report.offending if o.kind == "lost")
    assert '"id":2' in str(lost.value)


def test_a_column_that_was_renamed_has_the_same_rows(spark: SparkSession, table: Table, spec: JobSpec) -> None:
    """Files have the ids of columns, and not only their names."""
    frame = spark.sql(ROWS)
    deliver(spec, frame, IcebergStore)
    with table.handle().update_schema() as schema:
        schema.rename_column("d", "double")
        schema.rename_column("one.a", "first")
    renamed = frame.withColumnRenamed("d", "double").withColumn(
        "one", F.expr("named_struct('first', one.a, 'b', one.b)")
    )
    assert counts(compared(spark, spec, renamed)) == (4, 4, 0, 0, 0)
    read = table.handle().scan().to_arrow()
    assert sorted(read["double"].to_pylist()) == sorted(row.d for row in frame.select("d").collect())


def test_a_wider_table_has_the_same_rows(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    wide = spark.sql("SELECT CAST(1 AS BIGINT) AS id, CAST(1 AS DOUBLE) AS f, CAST(1 AS DECIMAL(12, 4)) AS n")
    narrow = spark.sql(
        "SELECT CAST(id AS SMALLINT) AS id, CAST(0.1 AS FLOAT) AS f, CAST(1.5 AS DECIMAL(4, 2)) AS n FROM range(4)"
    )
    spec = job(tmp_path, table)
    any_frame: Any = wide
    IcebergStore(spec).prepare(any_frame)
    deliver(spec, narrow, IcebergStore)
    assert counts(compared(spark, spec, narrow)) == (4, 4, 0, 0, 0)
    assert str(table.handle().scan().to_arrow().schema.field("n").type) == "decimal128(12, 4)"


def test_columns_have_any_name(spark: SparkSession, table: Table, tmp_path: Path) -> None:
    frame = spark.sql(NAMED)
    spec = job(tmp_path, table, partition_columns=(frame.columns[-1],))
    deliver(spec, frame, IcebergStore)
    rows = table.handle().scan().to_arrow()
    assert sorted(map(str, rows.select(frame.columns).to_pylist())) == sorted(str(r.asDict()) for r in frame.collect())
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)
