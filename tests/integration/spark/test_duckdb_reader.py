"""What the sinks write, read by DuckDB: its reader of Parquet is neither Arrow's, which the sinks use, nor Java's."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from integration.support import delta_stores, files_stores, iceberg_stores
from integration.support.typed_rows import COUNT, LAYOUTS, ROWS, content, content_of, deliver, deliver_files


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.sql(ROWS)


def read(files: Iterable[Path | str]) -> pa.Table:
    """The rows of the files. Types are not cast: they have to be those of Spark's rows."""
    paths = [str(file) for file in files]
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.read_parquet(paths, union_by_name=True, hive_partitioning=False).to_arrow_table()


def test_files(frame: DataFrame, tmp_path: Path) -> None:
    """As docs/files.md shows it."""
    deliver_files(files_stores.job(tmp_path, tmp_path / "files"), frame)
    rows = read([tmp_path / "files" / "*" / "*.parquet"])
    assert rows.num_rows == COUNT
    assert content(rows) == content_of(frame)


def test_files_of_an_iceberg_table(frame: DataFrame, tmp_path: Path) -> None:
    """Those of the latest snapshot: files have the partition columns, too."""
    for layout, columns in LAYOUTS.items():
        table = iceberg_stores.Table(tmp_path / layout)
        deliver(iceberg_stores.job(tmp_path, table, partition_columns=columns), frame, IcebergStore)
        assert content(read(iceberg_stores.place(path) for path in table.files())) == content_of(frame), layout


def test_files_of_a_delta_table(frame: DataFrame, tmp_path: Path) -> None:
    """Those of the latest version: files have the partition columns, too."""
    for layout, columns in LAYOUTS.items():
        table = delta_stores.Table(tmp_path / layout)
        deliver(delta_stores.job(tmp_path, table.path, partition_columns=columns), frame, DeltaStore)
        assert content(read(table.path / path for path in table.files())) == content_of(frame), layout
