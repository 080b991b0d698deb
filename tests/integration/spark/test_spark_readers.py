"""Our tables in the readers that Delta Lake and Iceberg have for Spark, which share no code with the sinks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from ackwright_stream.sinks.staged.positions import Names
from integration.support import delta_stores, iceberg_stores, spark_tables
from integration.support.iceberg_server import RestCatalogServer
from integration.support.staged_drivers import IDS, A
from integration.support.typed_rows import COUNT, LAYOUTS, ROWS, content, content_of, deliver

CONDITION = "day = DATE '2026-03-08' AND id > 1 AND s = 'ü'"  # for partitions, and for statistics of files


def queries(tables: Iterable[str]) -> list[str]:
    """All rows of each table, and those that fulfil the condition."""
    return [f"SELECT * FROM {table} WHERE {which}" for table in tables for which in ("true", CONDITION)]  # noqa: S608


def test_delta_tables_have_the_same_rows_also_from_a_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(ROWS)
    tables = [f"delta.`{tmp_path / layout}`" for layout in LAYOUTS]
    for layout, columns in LAYOUTS.items():
        deliver(delta_stores.job(tmp_path, tmp_path / layout, partition_columns=columns), frame, DeltaStore)
        DeltaTable(str(tmp_path / layout)).create_checkpoint()
        *older, _ = sorted((tmp_path / layout / "_delta_log").glob("*.json"))
        for entry in older:
            entry.unlink()  # as the cleanup of the log does, which keeps the checkpoint's own entry
    read = spark_tables.answers(queries(tables), spark_tables.DELTA_JARS, spark_tables.DELTA, tmp_path / "reader")
    expected = [content_of(frame), content_of(frame.where(CONDITION))]
    assert [len(rows) for rows in expected] == [COUNT, 2]
    assert [content(rows) for rows in read] == expected * len(LAYOUTS)


def test_delta_tables_whose_text_has_a_length_are_refused(tmp_path: Path) -> None:
    """Delta's writer for Spark stores the length beside the column, and only Spark checks it."""
    columns = {"top": "n BIGINT, code VARCHAR(3)", "nested": "n BIGINT, place STRUCT<code: CHAR(3)>"}
    create = [f"CREATE TABLE delta.`{tmp_path / name}` ({of_table}) USING delta" for name, of_table in columns.items()]
    spark_tables.answers(create, spark_tables.DELTA_JARS, spark_tables.DELTA, tmp_path / "creator")
    for name in columns:
        with pytest.raises(JobError, match="it uses columns of type VARCHAR or CHAR") as caught:
            DeltaStore(delta_stores.job(tmp_path, tmp_path / name)).check()
        assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_iceberg_tables_have_the_same_rows_and_the_positions(
    spark: SparkSession, rest_catalog: RestCatalogServer, tmp_path: Path
) -> None:
    frame = spark.sql(ROWS)
    namespace = f"readers{abs(hash(tmp_path)):x}"
    tables = {
        layout: iceberg_stores.Table(rest_catalog.warehouse / namespace, rest_catalog, f"{namespace}.{layout}")
        for layout in LAYOUTS
    }
    specs = {
        layout: iceberg_stores.job(tmp_path, tables[layout], partition_columns=columns)
        for layout, columns in LAYOUTS.items()
    }
    for spec in specs.values():
        deliver(spec, frame, IcebergStore)
    names = [f"{spark_tables.CATALOG}.{table.name}" for table in tables.values()]
    *read, properties = spark_tables.answers(
        [*queries(names), f"SHOW TBLPROPERTIES {names[0]}"],
        spark_tables.ICEBERG_JARS,
        spark_tables.iceberg(rest_catalog.uri),
        tmp_path / "reader",
    )
    expected = [content_of(frame), content_of(frame.where(CONDITION))]
    assert [content(rows) for rows in read] == expected * len(LAYOUTS)
    position = Names(specs["whole"].group).lane(A, IDS[A.topic])
    assert {"key": position, "value": str(COUNT)} in properties.to_pylist()
