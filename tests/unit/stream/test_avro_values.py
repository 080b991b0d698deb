"""Avro values from and to Arrow columns: round trips, what is malformed, and the audit's decoder beside the job's."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as T

from ackwright_stream import audit_avro
from ackwright_stream.audit_values import Undecodable
from ackwright_stream.formats import avro_schema
from ackwright_stream.formats.avro_values import Decoder, Encoder
from ackwright_stream.formats.registered import Unsupported
from unit.stream.avro_tables import tables


@settings(max_examples=150)
@given(tables())
def test_what_is_encoded_is_decoded_again_by_the_job_and_by_the_audit(table: tuple[T.StructType, list[Any]]) -> None:
    columns, rows = table
    schema = avro_schema.of_columns(columns.fields, "r")
    assert not list(avro_schema.mismatches(columns, avro_schema.read(schema)))
    encoder = Encoder(schema, 7)
    records = pa.array(rows, encoder.type.arrow)
    values = encoder.encode(records)
    decoded, problems = Decoder(schema, {7: schema}.get).decode(values)
    assert problems == [None] * len(rows)
    assert decoded.type == records.type
    assert decoded.to_pylist() == records.to_pylist()
    assert audit_reads(values.to_pylist(), schema, schema).to_pylist() == records.to_pylist()


def audit_reads(values: list[bytes | None], writer: str, reader: str) -> pa.Array:
    read = audit_avro.decoder(writer, reader)
    return pa.array([None if v is None else read(v, 5) for v in values], audit_avro.column_type(reader))


def record(*fields: dict[str, Any], name: str = "r", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields, **more})


def written(schema: str, value: Any) -> bytes:
    out = io.BytesIO(struct.pack(">bI", 0, 1))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(schema)), value)
    return out.getvalue()


LONG = {"name": "a", "type": "long"}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}
ENUM = {"type": "enum", "name": "e", "symbols": ["X", "Y"]}
AT = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("writer", "value", "reader", "expected"),
    [
        (record({"name": "a", "type": "int"}), {"a": 5}, record({"name": "a", "type": "double"}), {"a": 5.0}),
        (
            record({"name": "a", "type": "string"}),
            {"a": "ä"},
            record({"name": "a", "type": "bytes"}),
            {"a": "ä".encode()},
        ),
        (record(LONG, {"name": "gone", "type": "string"}), {"a": 1, "gone": "x"}, record(LONG), {"a": 1}),
        (record(LONG), {"a": 1}, record(LONG, {"name": "b", "type": "int", "default": 9}), {"a": 1, "b": 9}),
        (
            record(LONG),
            {"a": 1},
            record(LONG, {"name": "b", "type": ["null", "int"], "default": None}),
            {"a": 1, "b": None},
        ),
        (record(LONG), {"a": 1}, record({"name": "b", "type": "long", "aliases": ["a"]}), {"b": 1}),
        (record(LONG), {"a": 1}, record({"name": "a", "type": ["null", "long"]}), {"a": 1}),
        (record({"name": "a", "type": ["null", "long"]}), {"a": 1}, record(LONG), {"a": 1}),
        (record({"name": "a", "type": MICROS}), {"a": AT}, record({"name": "a", "type": MICROS}), {"a": AT}),
        (record({"name": "a", "type": MILLIS}), {"a": AT}, record({"name": "a", "type": MILLIS}), {"a": AT}),
        (record({"name": "a", "type": ENUM}), {"a": "Y"}, record({"name": "a", "type": ENUM}), {"a": "Y"}),
        (
            record({"name": "a", "type": ENUM}),
            {"a": "Y"},
            record({"name": "a", "type": {**ENUM, "symbols": ["X"], "default": "X"}}),
            {"a": "X"},
        ),
        (
            record(LONG),
            {"a": 1},
            record(LONG, {"name": "b", "type": "bytes", "default": "\u00ff"}),
            {"a": 1, "b": b"\xff"},
        ),
    ],
)
def test_a_writers_schema_resolves_to_the_readers(writer: str, value: Any, reader: str, expected: Any) -> None:
    data = written(writer, value)
    decoded, problems = Decoder(reader, {1: writer}.get).decode(pa.array([data]))
    assert problems == [None]
    assert decoded.to_pylist() == [expected]
    assert audit_reads([data], writer, reader).to_pylist() == [expected]


def test_the_readers_logical_type_counts_as_in_avros_own_readers() -> None:
    """A writer's plain long is the reader's timestamp, and a writer's milliseconds are not converted."""
    plain, stored = record(LONG), record({"name": "a", "type": MILLIS})
    for writer in (plain, stored):
        reader = record({"name": "a", "type": MICROS})
        data = written(plain, {"a": 1_000_000})
        decoded, _ = Decoder(reader, {1: writer}.get).decode(pa.array([data]))
        assert decoded.to_pylist() == [{"a": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)}]
        assert audit_reads([data], writer, reader).to_pylist() == decoded.to_pylist()


GOOD = written(record(LONG), {"a": 300})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (b"", "no schema id"),
        (GOOD[:4], "no schema id"),
        (b"\x01" + GOOD[1:], "first byte is 1"),
        (b'{"a": 1}', "first byte is 123"),
        (struct.pack(">bI", 0, 9) + GOOD[5:], "no schema 9"),
        (GOOD[:-1], "does not fit schema 1"),
        (GOOD + b"\0", "1 bytes follow"),
    ],
)
def test_a_malformed_record_spares_the_others(value: bytes, problem: str) -> None:
    decoded, problems = Decoder(record(LONG), {1: record(LONG)}.get).decode(pa.array([GOOD, value, None, GOOD]))
    assert problem in str(problems[1])
    assert [problems[0], *problems[2:]] == [None] * 3
    assert decoded.to_pylist() == [{"a": 300}, None, None, {"a": 300}]


def test_control_bytes_that_are_left_over_are_no_error_of_the_library() -> None:
    """Without the check of the end, a record of another schema would pass."""
    data = io.BytesIO(GOOD + b"\0")
    data.seek(5)
    assert fastavro.schemaless_reader(data, fastavro.parse_schema(json.loads(record(LONG)))) == {"a": 300}


def test_a_schema_that_does_not_resolve_makes_its_records_malformed() -> None:
    other = record({"name": "b", "type": "string"})
    data = written(other, {"b": "x"})
    _, problems = Decoder(record(LONG), {1: other}.get).decode(pa.array([data]))
    assert "does not fit schema 1" in str(problems[0])
    with pytest.raises(Undecodable):
        audit_reads([data], other, record(LONG))


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}, b"\x7f\xff\xff"),
        ("int", None),
        (MILLIS, 2**62),
    ],
    ids=["decimal", "int", "millis"],
)
def test_a_value_that_does_not_fit_its_column_is_malformed_alone(kind: Any, stored: Any) -> None:
    reader = record({"name": "a", "type": kind})
    if stored is None:  # a varint beyond 32 bits, which fastavro reads
        data = written(record(LONG), {"a": 2**40})
    else:
        data = written(record({"name": "a", "type": kind["type"]}), {"a": stored})
    fine = written(
        record({"name": "a", "type": kind["type"] if stored else "int"}),
        {"a": b"\1" if stored == b"\x7f\xff\xff" else 1},
    )
    decoded, problems = Decoder(reader, {1: reader}.get).decode(pa.array([fine, data, fine]))
    assert [p is None for p in problems] == [True, False, True]
    assert "does not fit its column" in str(problems[1])
    assert decoded[1].as_py() is None


def test_a_schema_that_is_registered_later_is_asked_for_again() -> None:
    known: dict[int, str] = {}
    decoder = Decoder(record(LONG), known.get)
    assert decoder.decode(pa.array([GOOD]))[1] != [None]
    known[1] = record(LONG)
    assert decoder.decode(pa.array([GOOD]))[1] == [None]


def test_a_record_that_the_declared_schema_refuses_is_named() -> None:
    strict = Encoder(
        record(LONG, {"name": "e", "type": ENUM}, {"name": "x", "type": {"type": "fixed", "name": "f", "size": 2}}), 1
    )
    fits = {"a": 1, "e": "X", "x": b"ab"}
    assert strict.encode(pa.array([fits], strict.type.arrow))[0].as_py()[:5] == struct.pack(">bI", 0, 1)
    for change, words in (({"a": None}, "a is null"), ({"e": "Z"}, "e is 'Z'"), ({"x": b"abc"}, "x has 3 bytes")):
        with pytest.raises(ValueError, match=words):
            strict.encode(pa.array([{**fits, **change}], strict.type.arrow))


def test_milliseconds_are_cut_off_and_sliced_columns_are_right() -> None:
    encoder = Encoder(
        record({"name": "a", "type": MILLIS}, {"name": "l", "type": {"type": "array", "items": "int"}}), 1
    )
    rows = [{"a": AT.replace(microsecond=n * 999), "l": list(range(n))} for n in range(5)]
    kind = pa.struct([("a", pa.timestamp("us", "Europe/Berlin")), ("l", pa.list_(pa.int8()))])
    values = encoder.encode(pa.array(rows, kind)[2:])
    schema = record({"name": "a", "type": MILLIS}, {"name": "l", "type": {"type": "array", "items": "int"}})
    decoded, _ = Decoder(schema, {1: schema}.get).decode(values)
    assert decoded.to_pylist() == [
        {"a": AT.replace(microsecond=n * 999 // 1000 * 1000), "l": list(range(n))} for n in range(2, 5)
    ]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("[1", "not JSON"),
        ('"string"', "top is not a record"),
        (record({"name": "a", "type": ["int", "string"]}), "union of 2 types"),
        (record({"name": "a", "type": ["null", "r"]}), "recursive"),
        (record({"name": "a", "type": "nowhere"}), "not defined"),
        (record({"name": "a", "type": "int"}, {"name": "A", "type": "int"}), "differ only in case: A, a"),
        (record(), "without fields"),
        (
            record({"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 50}}),
            "decimal of 50 digits",
        ),
    ],
)
def test_schemas_that_have_no_columns_are_refused_by_name(schema: str, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        avro_schema.read(schema)


def test_columns_that_do_not_fit_a_declared_schema_are_all_named() -> None:
    kind = avro_schema.read(record(LONG, {"name": "b", "type": "int"}, {"name": "c", "type": "string"}))
    columns = T.StructType([T.StructField("a", T.IntegerType()), T.StructField("b", T.LongType())])
    columns.add("d", T.StringType())
    problems = "; ".join(avro_schema.mismatches(columns, kind))
    assert "the field c, and the output has no such column" in problems
    assert "the column d, and the schema has no such field" in problems
    assert "column b is BIGINT, which does not fit Avro's int" in problems
    assert "column a" not in problems


def test_columns_without_a_schema_are_named() -> None:
    columns = T.StructType([T.StructField("a b", T.LongType()), T.StructField("n", T.NullType())])
    assert len(list(avro_schema.column_problems(columns.fields))) == 2
