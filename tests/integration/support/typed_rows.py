"""Rows of every type, in a table that a sink's driver commits, with tasks of real Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import LANE, Range
from ackwright_stream.sinks.base import StagedRows, Staging
from ackwright_stream.sinks.files.sink import FilesStore
from ackwright_stream.spark_internals.arrow import map_in_arrow
from integration.support import files_stores
from integration.support.staged_drivers import A, Driver

ROWS = """
SELECT id, s, CAST(id AS TINYINT) AS b, CAST(id AS SMALLINT) AS h, CAST(id AS BIGINT) AS l, CAST(id AS FLOAT) / 3 AS f,
    CAST(id AS DOUBLE) / 3 AS d, CAST(id AS DECIMAL(12, 2)) AS n, id = 1 AS t, X'00FF' AS x, DATE '2026-03-08' AS day,
    TIMESTAMP '2026-03-08 07:30:00.000001Z' AS at, TIMESTAMP_NTZ '2026-03-08 02:30:00' AS local,
    array(s, NULL) AS many, named_struct('a', id, 'b', s) AS one
FROM VALUES (1, 'a'), (2, 'ü'), (2, 'ü'), (3, NULL) AS rows (id, s)
"""
# Names that are no names of SQL; by the last one the table is partitioned.
NAMED = """
SELECT id AS `größe "x"`, s AS `b``t`, s AS `日付'%s`
FROM VALUES (1, 'a'), (2, 'ü'), (2, 'ü'), (3, NULL) AS rows (id, s)
"""
COUNT = 4
LAYOUTS = {"whole": (), "partitioned": ("day", "s")}  # partition columns


def deliver(spec: JobSpec, frame: DataFrame, store: Callable[[JobSpec], Staging]) -> Driver:
    """A batch whose tasks are Spark's. store: the sink."""
    driver = Driver(spec, columns=frame.schema)

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records, staged = store(spec).stage(batches)
        yield pa.record_batch({"records": pa.array([records]), "staged": pa.array([staged])})

    answer = StructType().add("records", "long").add("staged", "binary")
    answers = map_in_arrow(driver.sink.worker_columns(frame), in_task, answer).collect()
    rows = StagedRows(tuple(bytes(a.staged) for a in answers), sum(a.records for a in answers))
    assert driver.commit([Range(A, 0, COUNT)], rows) == (Outcome.DONE, rows.records)
    return driver


def deliver_files(spec: JobSpec, frame: DataFrame) -> None:
    """A batch of the sink of files, whose only task is Spark's."""
    driver = files_stores.Driver(spec, columns=frame.schema)
    membership, number, ids = driver.membership, driver.lanes.driver, driver.lanes.topic_ids

    def in_task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        lanes = Lanes(spec, FilesStore(spec), membership, number, ids)
        outcome, written = lanes.advance(0, [Range(A, 0, COUNT)], batches)
        yield pa.record_batch({"outcome": [outcome.value], "records": [written]})

    rows = driver.sink.worker_columns(frame.coalesce(1)).withColumn(LANE, F.lit(0))
    answers = rows.mapInArrow(in_task, "outcome string, records bigint").collect()
    assert [(a.outcome, a.records) for a in answers] == [("done", frame.count())]


def content(rows: pa.Table) -> list[str]:
    """The rows as text, sorted; the order of columns and the time zone of timestamps do not count."""
    utc = rows.set_column(rows.schema.get_field_index("at"), "at", rows["at"].cast(pa.timestamp("us", "UTC")))
    return sorted(str(sorted(row.items())) for row in utc.to_pylist())


def content_of(frame: DataFrame) -> list[str]:
    return content(pa.Table.from_batches(frame._collect_as_arrow()))
