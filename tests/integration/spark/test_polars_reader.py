"""The tables that the sinks write, read by Polars as tables: the log decides which files count.

delta-rs and PyIceberg read the log for Polars, which reads the files with its own reader of Parquet.
"""

from __future__ import annotations

import datetime
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.base import StagedRows
from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from integration.support import delta_stores, iceberg_stores
from integration.support.parquet_rows import rows_of
from integration.support.staged_drivers import A, Driver
from integration.support.typed_rows import COUNT, LAYOUTS, ROWS, content, content_of, deliver

# For partitions, and for statistics of files.
CONDITION = (pl.col("day") == datetime.date(2026, 3, 8)) & (pl.col("id") > 1) & (pl.col("s") == "ü")


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS).cache()


@pytest.fixture(scope="module")
def other(frame: DataFrame) -> DataFrame:
    """Rows that no row of `frame` equals."""
    return frame.withColumn("id", F.col("id") + 10)


def read(table: pl.LazyFrame) -> pa.Table:
    """The rows, read by Polars' own reader. Types are not cast: they have to be those of Spark's rows."""
    assert "Parquet SCAN" in table.explain()
    return table.collect().to_arrow()


def staged(driver: Driver, rows: DataFrame) -> StagedRows:
    """The rows in data files that no commit has yet."""
    return driver.stage(driver.sink.worker_columns(rows)._collect_as_arrow())


def commit(driver: Driver, rows: DataFrame) -> None:
    """Delivers the rows as the second batch."""
    assert driver.commit([Range(A, COUNT, 2 * COUNT)], staged(driver, rows)) == (Outcome.DONE, COUNT)


def rows_in_directory(directory: Path) -> int:
    """The rows of all data files, whether the table has them or not."""
    return len(rows_of(directory.rglob("*.parquet")))


def assert_rows(table: pl.LazyFrame, *frames: DataFrame) -> None:
    """Asserts that the table has the rows of the frames."""
    assert content(read(table)) == sorted(row for frame in frames for row in content_of(frame))


def test_delta_tables_have_the_rows_of_their_log(frame: DataFrame, other: DataFrame, tmp_path: Path) -> None:
    """Neither those of a commit that was rolled back nor those of files that no commit names."""
    for layout, columns in LAYOUTS.items():
        path = tmp_path / layout
        driver = deliver(delta_stores.job(tmp_path, path, partition_columns=columns), frame, DeltaStore)
        delivered = DeltaTable(str(path)).version()
        commit(driver, other)
        # Polars takes partition values from the files, where Delta's protocol does not require them, and not from the
        # log (Polars issue 23391).
        assert_rows(pl.scan_delta(path), frame, other)
        DeltaTable(str(path)).restore(delivered)
        staged(driver, other)
        assert rows_in_directory(path) == 3 * COUNT
        assert_rows(pl.scan_delta(path), frame)
        assert_rows(pl.scan_delta(path).filter(CONDITION), frame.where("id > 1 AND s = 'ü'"))


def test_iceberg_tables_have_the_rows_of_their_snapshot(
    frame: DataFrame, other: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of a snapshot that was rolled back nor those of files that no snapshot has."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without its plugin, which it would warn about
    for layout, columns in LAYOUTS.items():
        table = iceberg_stores.Table(tmp_path / layout)
        driver = deliver(iceberg_stores.job(tmp_path, table, partition_columns=columns), frame, IcebergStore)
        delivered = table.metadata["current-snapshot-id"]
        commit(driver, other)
        assert_rows(pl.scan_iceberg(table.handle().metadata_location), frame, other)
        table.roll_back(delivered)
        staged(driver, other)
        assert rows_in_directory(table.directory) == 3 * COUNT
        scan = pl.scan_iceberg(table.handle().metadata_location)
        assert_rows(scan, frame)
        assert_rows(scan.filter(CONDITION), frame.where("id > 1 AND s = 'ü'"))
