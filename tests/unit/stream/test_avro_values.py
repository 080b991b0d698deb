"""Avro values from and to Arrow columns: round trips, what is malformed, and the audit's decoder beside the job's."""

from __future__ import annotations

import io
import json
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from pyspark.sql import types as T

from ackwright_stream import audit_avro
from ackwright_stream.audit_values import Undecodable
from ackwright_stream.errors import JobError
from ackwright_stream.formats import avro, avro_schema
from ackwright_stream.formats.avro_values import Decoder, Encoder
from ackwright_stream.formats.registered import Find, Unsupported
from ackwright_stream.jobspec import Reason
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
    decoded, problems = Decoder(schema, schemas({7: schema})).decode(values)
    assert problems == [None] * len(rows)
    assert decoded.type == records.type
    assert decoded.to_pylist() == records.to_pylist()
    assert audit_reads(values.to_pylist(), schema, schema).to_pylist() == records.to_pylist()


def schemas(by_id: dict[int, str]) -> Find:
    """A registry with these schemas."""
    return lambda ids: {schema_id: by_id[schema_id] for schema_id in ids if schema_id in by_id}


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
    decoded, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([data]))
    assert problems == [None]
    assert decoded.to_pylist() == [expected]
    assert audit_reads([data], writer, reader).to_pylist() == [expected]


NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
DATE = {"type": "int", "logicalType": "date"}


def decimal(precision: int, scale: int, **more: Any) -> dict[str, Any]:
    return {"type": "bytes", **more, "logicalType": "decimal", "precision": precision, "scale": scale}


def fixed_decimal(scale: int) -> dict[str, Any]:
    return decimal(10, scale, type="fixed", name="f", size=5)


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        (decimal(10, 2), decimal(10, 4), "decimal with scale 2, and the reader's schema has decimal with scale 4"),
        (fixed_decimal(2), fixed_decimal(0), "decimal with scale 2, and the reader's schema has decimal with scale 0"),
        (MILLIS, MICROS, "timestamp-millis, and the reader's schema has timestamp-micros"),
        (MICROS, MILLIS, "timestamp-micros, and the reader's schema has timestamp-millis"),
        (MICROS, LOCAL, "timestamp-micros, and the reader's schema has local-timestamp-micros"),
        (DATE, MILLIS, "date, and the reader's schema has timestamp-millis"),
        (NANOS, MICROS, "timestamp-nanos, and the reader's schema has timestamp-micros"),
        ("string", decimal(10, 2), "string, and the reader's schema has decimal with scale 2"),
    ],
)
def test_a_writers_logical_type_that_is_not_the_readers_does_not_resolve(theirs: Any, ours: Any, words: str) -> None:
    """Avro's libraries read the stored number with the reader's logical type, which is another value."""
    in_record = {"type": "record", "name": "n"}
    old = {**in_record, "fields": [{"name": "x", "type": "int"}, {"name": "old", "type": ["null", theirs]}]}
    new = {**in_record, "fields": [{"name": "t", "type": ours, "aliases": ["old"]}]}
    for path, written_type, read_type in (
        ("a", theirs, ours),
        ("a", [theirs, "null"], ["null", ours]),
        ("a[]", {"type": "array", "items": theirs}, {"type": "array", "items": ours}),
        ("a{}", {"type": "map", "values": theirs}, {"type": "map", "values": ours}),
        ("a.t", old, new),
    ):
        writer, reader = record({"name": "a", "type": written_type}), record({"name": "a", "type": read_type})
        _, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([GOOD]))
        assert problems == [f"its schema 1 cannot be used: field {path} is {words}, which Avro does not convert"]
        with pytest.raises(Undecodable):
            audit_avro.decoder(writer, reader)


def test_a_named_type_is_followed_and_a_null_spares_no_record() -> None:
    """The schema is refused and not the value, by the job and by the audit."""
    writer = record({"name": "f", "type": fixed_decimal(2)}, {"name": "a", "type": ["null", "f"]}, namespace="n")
    reader = record({"name": "a", "type": ["null", fixed_decimal(3)]}, namespace="n")
    data = written(record({"name": "f", "type": "null"}, {"name": "a", "type": "null"}), {"f": None, "a": None})
    _, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([data]))
    assert "field a is decimal with scale 2" in str(problems[0])
    with pytest.raises(Undecodable):
        audit_avro.decoder(writer, reader)


@pytest.mark.parametrize(
    ("theirs", "stored", "ours", "expected"),
    [
        ("long", 1_000_000, MICROS, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        ("int", 1, DATE, date(1970, 1, 2)),
        (MICROS, 1_000_000, "long", 1_000_000),
        (DATE, 1, "long", 1),
        (MILLIS, 1_000_000, {"type": "long", "logicalType": "time-micros"}, 1_000_000),
        ({"type": "long", "logicalType": "of-nobody"}, 0, MILLIS, datetime(1970, 1, 1, tzinfo=UTC)),
        (decimal(10, 2), b"\x04\xd2", decimal(12, 2), Decimal("12.34")),
        (decimal(10, 2), b"\x04\xd2", decimal(4, 2), Decimal("12.34")),
        (decimal(10, 2), b"\x04\xd2", "bytes", b"\x04\xd2"),
        (decimal(10, 20), b"\x04\xd2", decimal(10, 2), Decimal("12.34")),
        ("bytes", b"\x04\xd2", decimal(10, 2), Decimal("12.34")),
    ],
)
def test_logical_types_that_leave_the_stored_value_resolve(theirs: Any, stored: Any, ours: Any, expected: Any) -> None:
    """Another precision, a type that one of the two lacks, and one that is none of Avro's or not valid."""
    writer, reader = record({"name": "a", "type": theirs}), record({"name": "a", "type": ours})
    data = written(json.dumps(avro_schema.physical(json.loads(writer))), {"a": stored})
    decoded, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([data]))
    assert problems == [None]
    assert decoded.to_pylist() == [{"a": expected}]
    assert audit_reads([data], writer, reader).to_pylist() == decoded.to_pylist()


def test_only_types_of_a_union_that_resolve_need_the_same_logical_type() -> None:
    writer, reader = record({"name": "a", "type": ["string", DATE, MICROS]}), record({"name": "a", "type": MICROS})
    data = written(record({"name": "a", "type": ["string", "int", "long"]}), {"a": 2**40})
    assert Decoder(reader, schemas({1: writer})).decode(pa.array([data]))[1] != [None], "the date may be promoted"
    writer = writer.replace('"int"', '"double"')
    decoded, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([data]))
    assert problems == [None]
    assert audit_reads([data], writer, reader).to_pylist() == decoded.to_pylist()


FIXED = {"type": "fixed", "name": "f", "size": 1}
INNER = {
    "type": "record",
    "name": "i",
    "fields": [{"name": "x", "type": "int", "default": 7}, {"name": "b", "type": "bytes", "default": "\u00fe"}],
}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        ("n.f", "\u00ff", b"\xff"),
        (["null", "n.f"], "\u00ff", b"\xff"),
        ({"type": "array", "items": "f"}, ["\u00ff"], [b"\xff"]),
        ("i", {}, {"x": 7, "b": b"\xfe"}),
        ("i", {"x": 8}, {"x": 8, "b": b"\xfe"}),
        ({"type": "map", "values": "i"}, {"k": {}}, [("k", {"x": 7, "b": b"\xfe"})]),
        ({"type": "double"}, 1, 1.0),
        (["string", "null"], None, None),
    ],
)
def test_a_default_is_of_the_type_that_its_field_refers_to(kind: Any, default: Any, expected: Any) -> None:
    named = [{"name": "f", "type": FIXED}, {"name": "i", "type": INNER}]
    writer = record(*named, namespace="n")
    reader = record(*named, {"name": "a", "type": kind, "default": default}, namespace="n")
    data = written(writer, {"f": b"x", "i": {"x": 1, "b": b"y"}})
    decoded, problems = Decoder(reader, schemas({1: writer})).decode(pa.array([data]))
    assert problems == [None]
    assert decoded[0]["a"].as_py() == expected
    assert audit_reads([data], writer, reader)[0]["a"].as_py() == expected


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("string", None),
        ("string", 5),
        ("int", 1.5),
        ("int", 2**31),
        ("long", "5"),
        ("long", True),
        ("double", "NaN"),
        (["null", "long"], "none"),
        ("bytes", "\u0100"),
        (FIXED, "ab"),
        (ENUM, "Z"),
        ({"type": "array", "items": "string"}, "ab"),
        ({"type": "map", "values": "int"}, []),
        (INNER, "x"),
        ({**INNER, "fields": [{"name": "x", "type": "int"}]}, {}),
    ],
)
def test_a_default_that_does_not_fit_its_type_is_none(kind: Any, default: Any) -> None:
    """Registries accept such a schema. Only records without the field are malformed."""
    reader = record(LONG, {"name": "b", "type": kind, "default": default})
    assert avro.column_names(reader) == ["a", "b"]
    assert Encoder(reader, 1).type == avro_schema.read(reader)
    _, problems = Decoder(reader, schemas({1: record(LONG)})).decode(pa.array([GOOD]))
    assert problems == ["it does not fit schema 1: No default value for field b in r"]
    with pytest.raises(Undecodable):
        audit_avro.decoder(record(LONG), reader)


@pytest.mark.parametrize(
    "schema",
    [
        record({"name": "a", "type": FIXED}, {"name": "b", "type": FIXED}),
        record({"type": "int"}),
        record({"name": "a"}),
    ],
    ids=["a name twice", "no name", "no type"],
)
def test_a_schema_that_the_library_refuses_is_reported_at_the_start(schema: str) -> None:
    for read in (avro.column_names, lambda text: avro.declared_problems(text, [])):
        with pytest.raises(Unsupported):
            read(schema)
    _, problems = Decoder(record(LONG), schemas({1: schema})).decode(pa.array([GOOD]))
    assert "its schema 1 cannot be used" in str(problems[0])


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
    decoded, problems = Decoder(record(LONG), schemas({1: record(LONG)})).decode(pa.array([GOOD, value, None, GOOD]))
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
    _, problems = Decoder(record(LONG), schemas({1: other})).decode(pa.array([data]))
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
    decoded, problems = Decoder(reader, schemas({1: reader})).decode(pa.array([fine, data, fine]))
    assert [p is None for p in problems] == [True, False, True]
    assert "does not fit its column" in str(problems[1])
    assert decoded[1].as_py() is None


def test_a_schema_that_is_registered_later_is_asked_for_again() -> None:
    known: dict[int, str] = {}
    decoder = Decoder(record(LONG), schemas(known))
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


@pytest.mark.parametrize(
    "kind",
    [
        "int",
        MILLIS,
        DATE,
        decimal(5, 1),
        INNER,
        {"type": "array", "items": "int"},
        {"type": "array", "items": INNER},
        {"type": "map", "values": INNER},
    ],
)
def test_an_untyped_null_is_a_null_of_every_type(kind: Any) -> None:
    """Spark's NULL, and the items of array(NULL)."""
    schema = record({"name": "a", "type": ["null", kind]})
    of_array = record({"name": "a", "type": {"type": "array", "items": ["null", kind]}})
    for declared, untyped, value in ((schema, pa.null(), None), (of_array, pa.list_(pa.null()), [None])):
        values = Encoder(declared, 1).encode(pa.array([{"a": value}], pa.struct([("a", untyped)])))
        decoded, problems = Decoder(declared, schemas({1: declared})).decode(values)
        assert (decoded.to_pylist(), problems) == ([{"a": value}], [None])


def test_milliseconds_are_cut_off_and_sliced_columns_are_right() -> None:
    encoder = Encoder(
        record({"name": "a", "type": MILLIS}, {"name": "l", "type": {"type": "array", "items": "int"}}), 1
    )
    rows = [{"a": AT.replace(microsecond=n * 999), "l": list(range(n))} for n in range(5)]
    kind = pa.struct([("a", pa.timestamp("us", "Europe/Berlin")), ("l", pa.list_(pa.int8()))])
    values = encoder.encode(pa.array(rows, kind)[2:])
    schema = record({"name": "a", "type": MILLIS}, {"name": "l", "type": {"type": "array", "items": "int"}})
    decoded, _ = Decoder(schema, schemas({1: schema})).decode(values)
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


def spark_struct(**kinds: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def test_a_name_that_a_derived_schema_would_have_twice_gets_a_number() -> None:
    line = spark_struct(x=T.LongType())
    columns = spark_struct(
        order=spark_struct(line=line, line_2=T.LongType()), order_line=line, order_line_2=T.ArrayType(line)
    )
    schema = avro.derived_schema("s-value", columns.fields, lambda: None)
    names = [part.partition('"')[0] for part in schema.split('"type":"record","name":"')[1:]]
    assert names == ["s", "s_order", "s_order_line", "s_order_line_2", "s_order_line_2_2"]
    assert avro.derived_schema("s-value", columns.fields, lambda: None) == schema
    encoder = Encoder(schema, 1)
    row = {"order": {"line": {"x": 1}, "line_2": 2}, "order_line": {"x": 3}, "order_line_2": [{"x": 4}]}
    decoded, problems = Decoder(schema, schemas({1: schema})).decode(
        encoder.encode(pa.array([row], encoder.type.arrow))
    )
    assert (decoded.to_pylist(), problems) == ([row], [None])


def test_columns_whose_derived_schema_is_not_valid_are_named() -> None:
    columns = spark_struct(s=spark_struct(a=T.LongType(), A=T.LongType()), b=T.LongType())
    with pytest.raises(JobError, match="from the columns s, b: field s has fields that differ only in case: A, a") as e:
        avro.derived_schema("s-value", columns.fields, lambda: None)
    assert e.value.reason is Reason.INVALID_TRANSFORM
