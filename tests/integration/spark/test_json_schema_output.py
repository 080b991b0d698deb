"""What Spark writes as JSON for a schema is valid for it, and the audit finds the same content on either side."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ackwright_stream import audit_json_schema
from ackwright_stream.formats import json_schema
from ackwright_stream.jobspec import OutputSchema
from unit.stream.avro_tables import tables


def written(spark: SparkSession, columns: T.StructType, rows: list[Any], schema: str) -> list[tuple[Any, Any]]:
    """The values that the job writes, and the contents that the audit expects."""
    frame = spark.createDataFrame([(row,) for row in rows], T.StructType([T.StructField("value", columns)])).coalesce(1)
    value = json_schema.to_value(frame.schema.fields, OutputSchema("s-value", schema, 7)).alias("written")
    content = audit_json_schema.text_of_columns(F.col("value"), columns, None).alias("content")
    return [(w and bytes(w), c and bytes(c)) for w, c in frame.select(value, content).collect()]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_job_and_audit_agree_on_every_type(spark: SparkSession, table: tuple[T.StructType, list[Any]]) -> None:
    columns, rows = table
    rows = [of_spark(row, columns) for row in rows]
    schema = json_schema.derived_schema("s-value", columns.fields, lambda: None)
    decode = audit_json_schema.decoder(schema, None)
    for row, (value, content) in zip(rows, written(spark, columns, rows, schema), strict=True):
        if row is None:
            assert (value, content) == (None, None)
        else:
            assert value[:5] == b"\0\0\0\0\7"
            assert audit_json_schema.text(decode(value, 5)) == content


def of_spark(value: Any, kind: T.DataType) -> Any:
    """A value of the tables as Spark takes it: a map is a dict and not a list of pairs."""
    if value is None:
        return None
    if isinstance(kind, T.StructType):
        return {f.name: of_spark(value[f.name], f.dataType) for f in kind.fields}
    if isinstance(kind, T.ArrayType):
        return [of_spark(v, kind.elementType) for v in value]
    return {k: of_spark(v, kind.valueType) for k, v in value} if isinstance(kind, T.MapType) else value


@pytest.mark.parametrize("kind", [T.FloatType(), T.ArrayType(T.DoubleType())])
def test_a_number_that_json_lacks_is_refused(spark: SparkSession, kind: T.DataType) -> None:
    columns = T.StructType([T.StructField("a", kind)])
    nan = float("nan")
    row = {"a": [1.5, nan] if isinstance(kind, T.ArrayType) else nan}
    with pytest.raises(Exception, match='"NaN" is not of type'):
        written(spark, columns, [row], json_schema.derived_schema("s-value", columns.fields, lambda: None))


def test_a_difference_shows(spark: SparkSession) -> None:
    """The negative control: other digits, another text, a property less."""
    columns = T.StructType.fromDDL("d DECIMAL(38, 18), t STRING, f FLOAT")
    schema = json_schema.derived_schema("s-value", columns.fields, lambda: None)
    row = {"d": Decimal("12345678901234567890.123456789012345678"), "t": "x", "f": 0.1}
    [(value, content)] = written(spark, columns, [row], schema)
    decode, same = audit_json_schema.decoder(schema, None), json.loads(value[5:])
    assert audit_json_schema.text(decode(value, 5)) == content
    for wrong in (value.replace(b"5678}", b"5679}").replace(b'5678,"t', b'5679,"t'), value.replace(b'"x"', b'"y"')):
        assert wrong != value
        assert audit_json_schema.text(decode(wrong, 5)) != content
    assert audit_json_schema.text(decode(value[:5] + json.dumps({"t": same["t"]}).encode(), 5)) != content
