"""Rows of real Spark in real files: as other programs read them, and as the audit compares them."""

from __future__ import annotations

from collections.abc import Iterator
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
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import LANE, Range
from ackwright_stream.sinks.files.sink import FilesStore
from integration.support.files_stores import A, Driver, Files, directory, job

ROWS = """
SELECT id, s, CAST(id AS TINYINT) AS b, CAST(id AS SMALLINT) AS h, CAST(id AS BIGINT) AS l, CAST(id AS FLOAT) / 3 AS f,
    CAST(id AS DOUBLE) / 3 AS d, CAST(id AS DECIMAL(12, 2)) AS n, id = 1 AS t, X'00FF' AS x, DATE '2026-03-08' AS day,
    TIMESTAMP '2026-03-08 07:30:00.000001Z' AS at, TIMESTAMP_NTZ '2026-03-08 02:30:00' AS local,
    array(s, NULL) AS many, named_struct('a', id, 'b', s) AS one
FROM VALUES (1, 'a'), (2, 'ü'), (2, 'ü'), (3, NULL) AS rows (id, s)
"""
COUNT = 4


@pytest.fixture
def spec(tmp_path: Path) -> JobSpec:
    return job(tmp_path, tmp_path / "files")


def deliver(spec: JobSpec, frame: DataFrame) -> None:
    """A batch whose task is Spark's."""
    driver = Driver(spec, columns=frame.schema)
    membership, number, ids = driver.membership, driver.lanes.driver, driver.lanes.topic_ids

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lanes = Lanes(spec, FilesStore(spec), membership, number, ids)
        outcome, written = lanes.advance(0, [Range(A, 0, COUNT)], batches)
        yield pa.record_batch({"outcome": [outcome.value], "records": [written]})

    rows = driver.sink.worker_columns(frame.coalesce(1)).withColumn(LANE, F.lit(0))
    answers = rows.mapInArrow(in_task, "outcome string, records bigint").collect()
    assert [(a.outcome, a.records) for a in answers] == [("done", frame.count())]


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
    deliver(spec, frame)
    empty = Driver(spec, columns=frame.schema).task().advance(0, [Range(A, COUNT, COUNT + 1)])
    assert empty == (Outcome.DONE, 0)
    path = Files(spec.sink.path).path  # type: ignore[attr-defined]

    def content(rows: pa.Table) -> list[str]:
        utc = rows.set_column(rows.schema.get_field_index("at"), "at", rows["at"].cast(pa.timestamp("us", "UTC")))
        return sorted(str(sorted(row.items())) for row in utc.to_pylist())

    expected = content(pa.Table.from_batches(frame._collect_as_arrow()))
    assert content(ds.dataset(path, format="parquet").to_table()) == expected
    schemas = [pq.read_schema(file).remove_metadata() for file in sorted(Path(path).glob("in-0.*/*.parquet"))]
    assert schemas[0] == schemas[1], "a file without rows has the same types"
    by_spark = spark.read.option("recursiveFileLookup", "true").parquet(path)
    assert content(pa.Table.from_batches(by_spark.select(frame.columns)._collect_as_arrow())) == expected
    assert counts(compared(spark, spec, frame)) == (4, 4, 0, 0, 0)


def test_the_audit_reports_each_kind_of_damage(spark: SparkSession, spec: JobSpec) -> None:
    frame = spark.sql(ROWS)
    deliver(spec, frame)
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
