"""Rows of real Spark in real files: as other programs read them, and as the audit compares them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.files import FilesReader
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from integration.support.files_stores import A, Driver, Files, directory, job
from integration.support.typed_rows import COUNT, ROWS, content, content_of, deliver_files


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return job(tmp_path, tmp_path / "files")


def compared(spark: SparkSession, spec: JobSpec, frame: DataFrame, late: DataFrame | None = None) -> Comparison:
    required = Output(frame.observe("sent", F.count(F.lit(1)).alias("records")), [], [])
    with FilesReader(spark, spec) as reader:
        doubts, _ = reader.fix_content(required, reader.lane_starts())
        assert doubts == []
        return reader.compare(required, None if late is None else Output(late, [], []), doubts, frame.count())


def counts(comparison: Comparison) -> tuple[int, int, int, int, int]:
    c = comparison
    return c.expected, c.delivered, c.lost, c.duplicated, c.unexpected


def test_rows_of_every_type_are_read_and_compared_as_they_were(spark: SparkSession, spec: JobSpec) -> None:
    """Also together with a file without rows."""
    frame = spark.sql(ROWS)
    deliver_files(spec, frame)
    empty = Driver(spec, columns=frame.schema).task().advance(0, [Range(A, COUNT, COUNT + 1)])
    assert empty == (Outcome.DONE, 0)
    path = Files(spec.sink.path).path  # type: ignore[attr-defined]

    expected = content_of(frame)
    assert content(ds.dataset(path, format="parquet").to_table()) == expected
    schemas = [pq.read_schema(file).remove_metadata() for file in sorted(Path(path).glob("in-0.*/*.parquet"))]
    assert schemas[0] == schemas[1], "a file without rows has the same types"
    by_spark = spark.read.option("recursiveFileLookup", "true").parquet(path)
    assert content_of(by_spark.select(frame.columns)) == expected
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)


def test_the_audit_reports_each_kind_of_damage(spark: SparkSession, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver_files(spec, frame)
    path = Path(spec.sink.path, directory())  # type: ignore[attr-defined]
    rows = pq.read_table(next(path.iterdir()))
    pq.write_table(rows.filter(pa.compute.equal(rows["id"], 1)), path / "again.parquet", store_schema=False)
    assert counts(compared(spark, spec, frame)) == (4, 5, 0, 1, 0)
    alien = rows.slice(0, 1).set_column(0, "id", pa.array([77], pa.int32()))
    pq.write_table(alien, path / "alien.parquet", store_schema=False)
    assert counts(compared(spark, spec, frame)) == (4, 6, 0, 1, 1)
    assert counts(compared(spark, spec, frame, frame.where("id = 1"))) == (4, 6, 0, 0, 1)
    own = path / f"{0:020}.parquet"
    metadata = {k: v for k, v in (pq.read_metadata(own).metadata or {}).items() if k.startswith(b"ackwright.")}
    without = rows.filter(pa.compute.not_equal(rows["id"], 2))
    with pq.ParquetWriter(own, without.schema.remove_metadata(), store_schema=False) as writer:
        writer.write_table(without)
        writer.add_key_value_metadata(metadata)
    report = compared(spark, spec, frame)
    assert counts(report) == (4, 4, 2, 1, 1)
    lost = next(o for o in report.offending if o.kind == "lost")
    assert '"id":2' in str(lost.value)
