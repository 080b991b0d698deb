"""Avro by Spark's own module reads and writes what Python workers do, and leaves to them what it reads differently."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.avro.functions import from_avro

from ackwright_stream.formats import avro, avro_jvm, avro_schema
from ackwright_stream.formats.avro_values import Decoder, Encoder
from ackwright_stream.formats.registered import Find
from ackwright_stream.jobspec import Format, SchemaRegistry, Source
from unit.stream.avro_tables import tables

ID = 7
LONG = {"name": "a", "type": "long"}
MILLIS = {"name": "a", "type": {"type": "long", "logicalType": "timestamp-millis"}}
MICROS = {"name": "a", "type": {"type": "long", "logicalType": "timestamp-micros"}}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}


def record(*fields: Mapping[str, Any], name: str = "r") -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields})


def written(schema: str, value: Any) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, ID))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(avro_schema.physical(json.loads(schema))), value)
    return out.getvalue()


def schemas(by_id: Mapping[int, str]) -> Find:
    """A registry with these schemas."""
    return lambda ids: {schema_id: by_id[schema_id] for schema_id in ids if schema_id in by_id}


def records(spark: SparkSession, values: Sequence[bytes | None]) -> DataFrame:
    frame = spark.createDataFrame([(v,) for v in values], "value BINARY").coalesce(1)
    return frame.select(F.struct("value").alias("kafka"))


def unordered(value: Any) -> Any:
    """The value with maps as dicts: Java's have another order."""
    if isinstance(value, dict):
        return {k: unordered(v) for k, v in value.items()}
    if isinstance(value, list):
        return (
            {k: unordered(v) for k, v in value}
            if any(isinstance(v, tuple) for v in value)
            else list(map(unordered, value))
        )
    return value


def fast(spark: SparkSession, values: Sequence[bytes | None], writer: str, reader: str) -> list[Any]:
    """The records as the JVM reads them; None for what is left to Python."""
    rows = avro_jvm.decoded(records(spark, values), reader, {str(ID): writer})
    return list(rows.select("fast").toArrow()["fast"].to_pylist())


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_columns_of_every_type(spark: SparkSession, table: tuple[T.StructType, list[Any]]) -> None:
    columns, rows = table
    schema = avro_schema.of_columns(columns.fields, "r")
    encoder = Encoder(schema, ID)
    expected = pa.array(rows, encoder.type.arrow)
    values = encoder.encode(expected).to_pylist()
    assert unordered(fast(spark, values, schema, schema)) == unordered(expected.to_pylist())
    written_rows = avro_jvm.decoded(records(spark, values), schema, {str(ID): schema})
    encoded = avro_jvm.encoded(F.col("fast"), columns.fields, schema, ID)
    assert encoded is not None
    again = written_rows.select(encoded.alias("value")).toArrow()["value"].combine_chunks()
    decoded, problems = Decoder(schema, schemas({ID: schema})).decode(again)
    assert problems == [None] * len(rows)
    assert unordered(decoded.to_pylist()) == unordered(expected.to_pylist())


GOOD = written(record(LONG), {"a": 300})


@pytest.mark.parametrize(
    "value",
    [b"", GOOD[:4], b"\x01" + GOOD[1:], struct.pack(">bI", 0, 9) + GOOD[5:], GOOD[:-1], GOOD + b"\0", GOOD + GOOD[5:]],
)
def test_malformed_records_are_left_to_python(spark: SparkSession, value: bytes) -> None:
    assert fast(spark, [GOOD, value, None], record(LONG), record(LONG)) == [{"a": 300}, None, None]


def test_control_without_the_end_bytes_that_are_left_over_pass(spark: SparkSession) -> None:
    datum = F.substring(F.col("kafka.value"), 6, 100)
    rows = records(spark, [GOOD + b"\0"]).select(from_avro(datum, record(LONG), {"mode": "PERMISSIVE"}).alias("r"))
    assert rows.select("r.a").collect()[0][0] == 300


@pytest.mark.parametrize(
    ("kind", "stored", "fits"),
    [
        ("string", b"\xff", b"x"),
        ({"type": "array", "items": "string"}, [b"x", b"\xff"], [b"x"]),
        ({"type": "map", "values": "string"}, {"k": b"\xff"}, {"k": b"x"}),
        (DECIMAL, (2**64 + 5).to_bytes(9, "big"), b"\5"),
        ({"type": "array", "items": DECIMAL}, [(2**64 + 5).to_bytes(9, "big")], [b"\5"]),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2**62, 1),
    ],
    ids=["text", "text in an array", "text in a map", "decimal", "decimal in an array", "milliseconds"],
)
def test_values_that_do_not_fit_are_left_to_python(spark: SparkSession, kind: Any, stored: Any, fits: Any) -> None:
    as_bytes = json.loads(json.dumps(kind).replace('"string"', '"bytes"'))
    schema, physical = record({"name": "a", "type": kind}), record({"name": "a", "type": as_bytes})
    values = [written(physical, {"a": value}) for value in (fits, stored)]
    first, second = fast(spark, values, schema, schema)
    assert second is None
    assert first == Decoder(schema, schemas({ID: schema})).decode(pa.array(values[:1]))[0][0].as_py()


def test_control_a_decimal_that_is_too_long_is_cut_down_by_the_library(spark: SparkSession) -> None:
    schema = record({"name": "a", "type": DECIMAL})
    value = written(record({"name": "a", "type": "bytes"}), {"a": (2**64 + 5).to_bytes(9, "big")})
    datum = F.substring(F.col("kafka.value"), 6, 100)
    rows = records(spark, [value]).select(from_avro(datum, schema, {"mode": "PERMISSIVE"}).alias("r"))
    assert rows.select("r.a").collect()[0][0] == Decimal("0.05")


@pytest.mark.parametrize(
    ("writer", "reader", "value"),
    [
        (record({"name": "a", "type": "int"}), record({"name": "a", "type": "double"}), {"a": 5}),
        (record(LONG, {"name": "gone", "type": "string"}), record(LONG), {"a": 1, "gone": "x"}),
        (record(LONG), record(LONG, {"name": "b", "type": "int", "default": 9}), {"a": 1}),
        (record(LONG), record({"name": "b", "type": "long", "aliases": ["a"]}), {"a": 1}),
        (record({"name": "a", "type": ["null", "long"]}), record(LONG), {"a": 1}),
        (record(LONG), record(LONG, {"name": "b", "type": ["null", "int"], "default": 9}), {"a": 1}),
        (record(LONG), record(LONG, {"name": "b", "type": ["double", "null"], "default": None}), {"a": 1}),
        (record(LONG), record(LONG, {"name": "b", "type": {"type": "double"}, "default": 9}), {"a": 1}),
        (record(LONG), record(MICROS), {"a": 1}),
        (record(MICROS), record(LONG), {"a": 1}),
        (
            record({"name": "a", "type": DECIMAL}),
            record({"name": "a", "type": {**DECIMAL, "precision": 30}}),
            {"a": b"\x04\xd2"},
        ),
    ],
)
def test_a_writers_schema_resolves_to_the_readers(
    spark: SparkSession, writer: str, reader: str, value: Mapping[str, Any]
) -> None:
    data = written(writer, value)
    decoded, problems = Decoder(reader, schemas({ID: writer})).decode(pa.array([data]))
    assert problems == [None]
    assert fast(spark, [data], writer, reader) == decoded.to_pylist()


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (record(LONG, name="other"), record(LONG)),
        (record(MILLIS), record(MICROS)),
        (record(LONG), record(LONG, {"name": "b", "type": "int", "default": 1.5})),
        (json.dumps("long"), record(LONG)),
        (record(LONG, {"name": "ackwright_end", "type": "int"}), record(LONG)),
        (record({"name": "b", "type": "string"}), record(LONG)),
    ],
    ids=[
        *("another name", "another logical type", "a default that does not fit"),
        *("no record", "the name of the end", "not resolvable"),
    ],
)
def test_other_writers_are_left_to_python(spark: SparkSession, writer: str, reader: str) -> None:
    assert fast(spark, [GOOD], writer, reader) == [None]


def test_python_decodes_the_rest_and_says_what_is_wrong(spark: SparkSession) -> None:
    """The records of an older writer of another name, which fastavro resolves, between others."""
    schema, older = record(LONG), record({"name": "a", "type": "int"}, name="r")
    other = struct.pack(">bI", 0, ID + 1) + written(older, {"a": 8})[5:]
    source = avro_source(schema, {str(ID): schema, str(ID + 1): older})
    parsed = avro.parse(records(spark, [GOOD, None, GOOD + b"\0", other]), source, SchemaRegistry("", None, None, 1))
    assert parsed.malformed is not None
    assert parsed.problem is not None
    rows = parsed.rows.select("*", parsed.malformed.alias("malformed"), parsed.problem.alias("problem"))
    assert [r["malformed"] for r in rows.collect()] == [False, False, True, False]
    assert rows.collect()[2]["problem"] == "1 bytes follow what schema 7 describes"
    assert [r["a"] for r in parsed.view(parsed.rows).collect()] == [300, None, None, 8]


def avro_source(schema: str, writers: Mapping[str, str]) -> Source:
    return Source(
        topics=("t",),
        starting_offsets="earliest",
        max_offsets_per_trigger=None,
        offsets_per_transaction=None,
        smallest_batch=None,
        format=Format.AVRO,
        schema=schema,
        dead_letter_fraction=None,
        subject="t-value",
        schema_version=1,
        writer_schemas=writers,
        skip_malformed=False,
    )
