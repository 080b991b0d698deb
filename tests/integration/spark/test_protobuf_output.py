"""What Spark's workers write as Protobuf, and the content that the audit finds on either side."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ackwright_stream import audit_protobuf
from ackwright_stream.formats import protobuf
from ackwright_stream.jobspec import OutputSchema

COLUMNS = (
    T.StructType()
    .add("id", T.LongType())
    .add("small", T.ByteType())
    .add("ratio", T.FloatType())
    .add("total", T.DoubleType())
    .add("valid", T.BooleanType())
    .add("item", T.StringType())
    .add("data", T.BinaryType())
    .add("at", T.TimestampType())
    .add("tags", T.ArrayType(T.StringType()))
    .add("counts", T.MapType(T.IntegerType(), T.LongType()))
    .add("places", T.ArrayType(T.StructType().add("x", T.DoubleType()).add("name", T.StringType())))
)
AT = datetime(2020, 2, 29, 12, 0, 0, 123_456, tzinfo=UTC)
ROWS: list[dict[str, Any] | None] = [
    {
        **{
            "id": -(2**63),
            "small": -1,
            "ratio": 0.1,
            "total": -0.0,
            "valid": False,
            "item": "",
            "data": b"\0",
            "at": AT,
        },
        **{"tags": ["a", ""], "counts": {2: 1, 1: 0}, "places": [{"x": 1.5, "name": None}]},
    },
    {"id": None, "tags": [], "counts": {}, "places": None},
    None,
]


def written(spark: SparkSession, rows: list[Any], columns: T.StructType, schema: str | None) -> list[tuple[Any, Any]]:
    """The values that the job writes, and the contents that the audit expects. schema: None: derived."""
    frame = spark.createDataFrame([(row,) for row in rows], T.StructType().add("value", columns)).coalesce(1)
    text = schema or protobuf.derived_schema("s-value", columns.fields, lambda: None)
    value = protobuf.to_value(frame.schema.fields, OutputSchema("s-value", text, 7)).alias("written")
    content = audit_protobuf.text_of_columns(F.col("value"), columns, schema).alias("content")
    return [(w and bytes(w), c and bytes(c)) for w, c in frame.select(value, content).collect()]


def test_job_and_audit_agree_on_every_type(spark: SparkSession) -> None:
    schema = protobuf.derived_schema("s-value", COLUMNS.fields, lambda: None)
    assert protobuf.declared_problems(schema, COLUMNS.fields) == []
    decode, answers = audit_protobuf.decoder(schema, None), written(spark, ROWS, COLUMNS, None)
    assert answers[2] == (None, None)
    for value, content in answers[:2]:
        assert value[:6] == b"\0\0\0\0\7\0"
        assert audit_protobuf.text(decode(value, 5)) == content
    (first, content), (_, other) = answers[:2]
    assert content != other
    changed = first.replace(b"\x08\x02\x10\x01", b"\x08\x02\x10\x02")  # a value of the map
    assert changed != first
    assert audit_protobuf.text(decode(changed, 5)) != content, "a difference shows"


def test_a_declared_schema_that_does_not_show_absent_fields(spark: SparkSession) -> None:
    schema = (
        'syntax = "proto3"; message A { int64 id = 1; string item = 2; Kind k = 3; } enum Kind { NO = 0; YES = 1; }'
    )
    columns = T.StructType().add("id", T.LongType()).add("k", T.StringType())
    decode = audit_protobuf.decoder(schema, None)
    for value, content in written(spark, [{"id": 0, "k": "NO"}, {"id": 5, "k": "YES"}], columns, schema):
        assert audit_protobuf.text(decode(value, 5)) == content
    with pytest.raises(Exception, match="id is null, and the schema does not allow it"):
        written(spark, [{"id": None, "k": "NO"}], columns, schema)
