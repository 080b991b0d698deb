"""Arrow's types as Spark's."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType


def spark_schema(schema: pa.Schema) -> StructType:
    """The schema of the frame that mapInArrow returns for record batches of this Arrow schema."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema of record batches with the columns of a frame, times in UTC."""
    return to_arrow_schema(schema)
