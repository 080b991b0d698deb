"""Rows of real Spark in a real Delta table: as other programs read them, and as the audit compares them.

delta-rs plays the programs that damage the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.delta import DeltaReader
from ackwright_stream.jobspec import DeltaSink, JobSpec
from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.spark_internals.rounding import TOLERANCE
from integration.support.delta_stores import job
from integration.support.typed_rows import COUNT, LAYOUTS, NAMED, ROWS, content, content_of, deliver


@pytest.fixture(params=list(LAYOUTS.values()), ids=list(LAYOUTS))
def spec(tmp_path: Path, request: pytest.FixtureRequest) -> JobSpec:
    return job(tmp_path, tmp_path / "table", partition_columns=request.param)


def compared(spark: SparkSession, spec: JobSpec, frame: DataFrame, late: DataFrame | None = None) -> Comparison:
    required = frame.observe("sent", F.count(F.lit(1)).alias("records"))
    with DeltaReader(spark, spec) as reader:
        assert reader.positions([("in", 0)]) == {("in", 0): COUNT}
        assert {lane: start.start for lane, start in reader.lane_starts().items()} == {("in", 0): 0}
        of_late = None if late is None else Output(late, [], [])
        return reader.compare(Output(required, [], []), of_late, [], COUNT)


def counts(comparison: Comparison) -> tuple[int, int, int, int, int]:
    c = comparison
    return c.expected, c.delivered, c.lost, c.duplicated, c.unexpected


def test_rows_of_every_type_are_read_and_compared_as_they_were(spark: SparkSession, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame, DeltaStore)
    table = DeltaTable(spec.sink_of(DeltaSink).path)
    assert content(table.to_pyarrow_table()) == content_of(frame)
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)


def test_the_audit_reports_each_kind_of_damage(spark: SparkSession, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame, DeltaStore)
    path = spec.sink_of(DeltaSink).path
    rows = DeltaTable(path).to_pyarrow_table()
    write_deltalake(path, rows.filter(pa.compute.equal(rows["id"], 1)), mode="append")
    assert counts(compared(spark, spec, frame)) == (4, 5, 0, 1, 0)
    alien = rows.slice(0, 1).set_column(0, "id", pa.array([77], pa.int32()))
    write_deltalake(path, alien, mode="append")
    assert counts(compared(spark, spec, frame)) == (4, 6, 0, 1, 1)
    assert counts(compared(spark, spec, frame, frame.where("id = 1"))) == (4, 6, 0, 0, 1)
    DeltaTable(path).delete("id = 2")
    report = compared(spark, spec, frame)
    assert counts(report) == (4, 4, 2, 1, 1)
    lost = next(o for o in report.offending if o.kind == "lost")
    assert '"id":2' in str(lost.value)
    DeltaTable(path).create_checkpoint()
    assert counts(compared(spark, spec, frame)) == (4, 4, 2, 1, 1), "a checkpoint says the same as the entries"


def test_a_wider_table_has_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    wide = spark.sql("SELECT CAST(1 AS BIGINT) AS id, CAST(1 AS DOUBLE) AS f, CAST(1 AS DECIMAL(12, 4)) AS n")
    narrow = spark.sql(
        "SELECT CAST(id AS SMALLINT) AS id, CAST(0.1 AS FLOAT) AS f, CAST(1.5 AS DECIMAL(4, 2)) AS n FROM range(4)"
    )
    spec = job(tmp_path, tmp_path / "table")
    any_frame: Any = wide
    DeltaStore(spec).prepare(any_frame)
    deliver(spec, narrow, DeltaStore)
    assert counts(compared(spark, spec, narrow)) == (4, 4, 0, 0, 0)
    assert str(DeltaTable(str(tmp_path / "table")).to_pyarrow_table().schema.field("n").type) == "decimal128(12, 4)"


def test_columns_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(NAMED.replace(' "x"', ".x"))
    spec = job(tmp_path, tmp_path / "table", partition_columns=(frame.columns[-1],))
    deliver(spec, frame, DeltaStore)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table()
    assert sorted(map(str, rows.select(frame.columns).to_pylist())) == sorted(str(r.asDict()) for r in frame.collect())
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)


def test_numbers_with_a_tolerance_are_compared_by_the_rest_of_their_row(spark: SparkSession, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame, DeltaStore)
    table = DeltaTable(spec.sink_of(DeltaSink).path)

    def faults(tolerances: dict[str, float]) -> tuple[int, int, int]:
        required = Output(frame.observe("sent", F.count(F.lit(1)).alias("records")), [], [], tolerances=tolerances)
        with DeltaReader(spark, spec) as reader:
            c = reader.compare(required, None, [], COUNT)
        return c.lost, c.duplicated, c.unexpected

    table.update({"d": "d * (1 + 1e-12)"})
    assert faults({}) == (4, 0, 4)
    assert faults({"d": TOLERANCE}) == (0, 0, 0)
    table.update({"d": "d * (1 + 1e-6)"}, predicate="id = 2")
    assert faults({"d": TOLERANCE}) == (2, 0, 2)
