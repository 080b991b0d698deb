"""Arrow's types as Spark's, and Python functions over batches of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of the frame that mapInArrow returns for record batches of this Arrow schema."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of record batches with the columns of a frame, times in UTC."""
    return to_arrow_schema(schema)


def map_in_arrow(
    rows: DataFrame, task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], answer: StructType
) -> DataFrame:
    """DataFrame.mapInArrow for any names of columns: PySpark takes a dot for a field, and refuses a backtick."""
    names = list(rows.columns)
    if not any({".", "`"}.intersection(name) for name in names):
        return rows.mapInArrow(task, answer)

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return rows.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(named, answer)
