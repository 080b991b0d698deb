"""Protobuf: its types, what is malformed, derived schemas, and the audit's decoder in plain Python beside the job's."""

from __future__ import annotations

import base64
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message_factory import GetMessageClass
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from ackwright_stream import audit_protobuf, audit_values
from ackwright_stream.audit_values import Undecodable
from ackwright_stream.errors import JobError
from ackwright_stream.formats import protobuf, protobuf_text, protobuf_types
from ackwright_stream.formats.protobuf_values import Decoder, Encoder
from ackwright_stream.formats.registered import Unsupported
from ackwright_stream.jobspec import Reason

ORDER = """
// Everything that a .proto file may have around its fields.
syntax = "proto3";
package shop.v1; /* a comment; with { */
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/meta.proto";
option java_package = "shop; {";
option (meta) = { name: "x" list: [1, 2] };
message Order {
  option deprecated = true;
  reserved 50, 60 to 70;
  reserved "old";
  sint64 id = 1 [(meta) = { doc: "a; b" }, deprecated = false];
  optional string item = 2;
  google.protobuf.Timestamp at = 3;
  repeated int32 counts = 4;
  map<string, Place> places = 5;
  enum Kind { option allow_alias = true; NONE = 0; NEW = 1; FRESH = 1; BACK = -2; }
  Kind kind = 6;
  message Place { float x = 1; oneof what { string name = 2; bytes code = 3; } }
  Place place = 7;
  oneof other { fixed32 number = 8; .shop.v1.Order.Place there = 9; }
  google.protobuf.Int64Value wrapped = 10;
  uint64 big = 11;
  bool flag = 12;
  repeated Place all_places = 13;
  map<int32, uint64> by_number = 14;
  repeated Kind kinds = 15 [packed = false];
  double d = 16;
  sfixed64 s = 17;
  uint32 u = 18;
}
message Note { string text = 1; message Inner { int32 a = 1; } }
service Orders { rpc Get (Order) returns (stream Note) { option (x) = { get: "/v1" }; } }
"""
MESSAGE = GetMessageClass(protobuf_text.first_message(protobuf_text.file_of(ORDER)))
EMPTY: dict[str, Any] = {
    **{"id": 0, "item": None, "at": None, "counts": [], "places": [], "kind": "NONE", "place": None, "number": None},
    **{"there": None, "wrapped": None, "big": Decimal(0), "flag": False, "all_places": [], "by_number": []},
    **{"kinds": [], "d": 0.0, "s": 0, "u": 0},
}
PLACE: dict[str, Any] = {"x": 0.0, "name": None, "code": None}


INT, LONG, TEXT = T.IntegerType(), T.LongType(), T.StringType()


def columns(**kinds: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def framed(data: bytes, indexes: bytes = b"\0", schema_id: int = 1) -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + data


def decoded(reader: str, *values: bytes | None, writer: str | None = None) -> tuple[list[Any], list[str | None]]:
    """What the job reads; the audit must read the same."""
    writer = reader if writer is None else writer
    records, problems = Decoder(reader, lambda _: {1: writer}).decode(pa.array(values, pa.binary()))
    kind, read = audit_protobuf.column_type(reader), audit_protobuf.decoder(writer, reader)
    assert kind == records.type or str(kind).replace("item", "element") == str(records.type).replace("item", "element")
    for value, record, problem in zip(values, records, problems, strict=True):
        if value is None or len(value) < 5 or struct.unpack_from(">bI", value) != (0, 1):
            continue
        if problem is None:
            assert repr(pa.array([read(value, 5)], records.type).to_pylist()) == repr([record.as_py()])
        else:
            with pytest.raises(Undecodable):
                read(value, 5)
    return records.to_pylist(), problems


def test_a_record_of_every_type() -> None:
    message = MESSAGE(
        **{"id": -5, "item": "x", "at": {"seconds": 1, "nanos": 2_345_678}, "counts": [1, -2], "kind": "BACK"},
        **{
            "places": {"b": {"x": 0.5}, "a": {"name": ""}},
            "place": {},
            "there": {"code": b"c"},
            "wrapped": {"value": 0},
        },
        **{"big": 2**64 - 1, "flag": True, "all_places": [{"x": 1.0}], "by_number": {-1: 7}, "kinds": [1, 9, 0]},
        **{"d": -0.0, "s": -1, "u": 2**32 - 1},
    )
    (first, second, third), problems = decoded(ORDER, framed(message.SerializeToString()), framed(b""), None)
    assert problems == [None] * 3
    place = {"x": 0.0, "name": None, "code": None}
    assert first["at"].isoformat() == "1970-01-01T00:00:01.002345+00:00"
    assert repr(first | {"at": None}) == repr(
        {
            "id": -5,
            "item": "x",
            "at": None,
            "counts": [1, -2],
            "places": [("a", place | {"name": ""}), ("b", place | {"x": 0.5})],
        }
        | {"kind": "BACK", "place": place, "number": None, "there": place | {"code": b"c"}, "wrapped": 0}
        | {"big": Decimal(2**64 - 1), "flag": True, "all_places": [place | {"x": 1.0}], "by_number": [(-1, Decimal(7))]}
        | {"kinds": ["NEW", "9", "NONE"], "d": -0.0, "s": -1, "u": 2**32 - 1}
    )
    assert second == EMPTY
    assert third is None


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "0 bytes and no schema id"),
        (b"\x08\x01\x02\x03\x04\x05", "its first byte is 8 and not 0"),
        (framed(b"", schema_id=9), "the registry has no schema 9"),
        (framed(b"", indexes=b""), "it does not fit schema 1"),
        (framed(b"", indexes=b"\x02\x02"), "it is the message shop.v1.Note, and the reader's schema has shop.v1.Order"),
        (framed(b"", indexes=b"\x04\x02\x00"), "it is the message shop.v1.Note.Inner"),
        (framed(b"", indexes=b"\x02\x08"), "it is no message of schema 1"),
        (framed(b"", indexes=b"\x01"), "it has -1 indexes of a message"),
        (framed(b"\x08"), "it does not fit schema 1"),
        (framed(b"\x12\x05abc"), "it does not fit schema 1"),
        (framed(b"\x12\x01\xff"), "it does not fit schema 1"),
        (framed(b"\x07"), "it does not fit schema 1"),
        (framed(b"\x00\x01"), "it does not fit schema 1"),
        (
            framed(b"\x1a\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x00"),
            "at is no time that a TIMESTAMP can hold",
        ),
    ],
)
def test_malformed(value: bytes, words: str) -> None:
    records, problems = decoded(ORDER, framed(b""), value)
    assert problems[0] is None, "the other records of the batch are read"
    assert records[1] is None
    assert words in str(problems[1])


def test_a_record_of_another_writer_is_read_by_the_numbers_of_its_fields() -> None:
    reader = 'syntax = "proto3"; message A { int64 id = 1; optional string b = 2; }'
    writer = 'syntax = "proto3"; message A { string added = 9; int64 renamed = 1; }'
    message = GetMessageClass(protobuf_text.first_message(protobuf_text.file_of(writer)))(added="x", renamed=5)
    assert decoded(reader, framed(message.SerializeToString()), writer=writer) == ([{"id": 5, "b": None}], [None])


def test_proto2() -> None:
    schema = """
    message A { required int32 id = 1; optional string a = 2 [default = "x"]; optional Kind kind = 3; }
    enum Kind { ONE = 1; }
    """
    one, lacking, unknown = b"\x08\x01", b"\x12\x01y", b"\x08\x01\x18\x07"
    records, problems = decoded(schema, *map(framed, (one, lacking, unknown)))
    assert records == [{"id": 1, "a": None, "kind": None}, None, {"id": 1, "a": None, "kind": None}]
    assert "it lacks id, which its schema requires" in str(problems[1])


def test_a_schema_that_was_registered_as_a_descriptor() -> None:
    """Some clients register the descriptor in base64 in place of the text."""
    file = FileDescriptorProto()
    MESSAGE.DESCRIPTOR.file.CopyToProto(file)
    file.dependency.append("confluent/meta.proto")
    text = base64.b64encode(file.SerializeToString()).decode()
    message = MESSAGE(id=3, places={"a": {"x": 0.5}}, item="", kind=1, number=7, by_number={1: 2}, kinds=[1])
    value = framed(message.SerializeToString())
    assert decoded(text, value) == decoded(ORDER, value)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("hello", "neither a .proto file nor a descriptor"),
        ("message {", "it is no .proto file: line 1"),
        ("message A { int32 = 1; }", "it is no .proto file: line 1"),
        ('syntax = "proto3"; enum E { A = 0; }', "it has no message"),
        ('edition = "2023"; message A { int32 a = 1; }', "its syntax is 2023"),
        ("message A { optional group G = 1 { optional int32 a = 1; } }", "message A has the group G"),
        ('syntax = "proto3"; message A { B b = 1; }', "couldn't resolve name 'B'"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "1"),
        ('syntax = "proto3"; message A { }', "is the message A, which has no fields"),
        ('syntax = "proto3"; message A { A a = 1; }', "field a is A again: recursive messages have no columns"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 A = 2; }', "differ only in case: A, a"),
        (
            'syntax = "proto3"; import "google/protobuf/struct.proto"; message A { google.protobuf.Struct s = 1; }',
            "field s.fields.struct_value is google.protobuf.Struct again",
        ),
    ],
)
def test_a_schema_without_columns_is_refused_by_name(schema: str, words: str) -> None:
    with pytest.raises(Unsupported) as e:
        protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(schema)))
    assert words in str(e.value)


def test_a_derived_schema_keeps_the_numbers_of_its_columns() -> None:
    first = protobuf_types.of_columns(columns(a=INT, b=TEXT, s=columns(x=INT, y=INT)).fields, "r", None)
    assert first == (
        'syntax = "proto3";\nmessage r {\n  optional int32 a = 1;\n  optional string b = 2;\n  message Record_s {\n'
        "    optional int32 x = 1;\n    optional int32 y = 2;\n  }\n  optional Record_s s = 3;\n}\n"
    )
    later = columns(c=INT, b=TEXT, s=columns(y=INT, z=INT)).fields
    second = protobuf_types.of_columns(later, "r", first)
    assert second == (
        'syntax = "proto3";\nmessage r {\n  reserved 1;\n  optional int32 c = 4;\n  optional string b = 2;\n'
        "  message Record_s {\n    reserved 1;\n    optional int32 y = 2;\n    optional int32 z = 3;\n  }\n"
        "  optional Record_s s = 3;\n}\n"
    )
    assert protobuf_types.of_columns(later, "r", second) == second
    back = protobuf_types.of_columns(columns(a=INT).fields, "r", second)
    assert "  optional int32 a = 5;\n" in back, "a number that was reserved is not used again"
    assert "reserved 1;\n  reserved 2;\n  reserved 3;\n  reserved 4;" in back


def test_a_declared_schema_and_the_columns() -> None:
    schema = 'syntax = "proto3"; message A { int32 id = 1; optional string b = 2; repeated int64 l = 3; uint32 u = 4; }'
    kind = protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(schema)))
    fitting = columns(id=T.ShortType(), l=T.ArrayType(INT), u=LONG)
    assert list(protobuf_types.mismatches(fitting, kind)) == []
    wrong = columns(id=LONG, extra=INT, l=T.ArrayType(TEXT), u=T.NullType())
    assert list(protobuf_types.mismatches(wrong, kind)) == [
        "the output has the column extra, and the schema has no such field",
        "column id is BIGINT, which does not fit Protobuf's int32; cast it",
        "column l[] is STRING, which does not fit Protobuf's int64; cast it",
        "column u is null, and the schema does not allow it",
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": None}, "id is null, and the schema does not allow it"),
        ({"counts": [1, None]}, r"counts\[\] is null"),
        ({"kind": "OTHER"}, "kind is 'OTHER', which is no value of the enum"),
        ({"u": -1}, "u is -1, which is no unsigned number of 32 bits"),
        ({"number": 1, "there": PLACE}, "number, there are not null, and the oneof other holds only one of them"),
        (
            {"place": {**PLACE, "name": "", "code": b""}},
            r"place\.name, place\.code are not null, and the oneof place\.what",
        ),
        ({"all_places": [{**PLACE, "name": "", "code": b""}]}, r"all_places\.name, all_places\.code are not null"),
    ],
)
def test_the_encoder_names_what_the_schema_refuses(row: dict[str, Any], words: str) -> None:
    kind = protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(ORDER)))
    with pytest.raises(ValueError, match=words):
        Encoder(ORDER, 7).encode(pa.array([{**EMPTY, **row}], kind.arrow))


@pytest.mark.parametrize("member", [{"number": 0}, {"there": PLACE}, {"place": {**PLACE, "code": b""}}, {}])
def test_one_member_of_a_oneof_is_written(member: dict[str, Any]) -> None:
    kind = protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(ORDER)))
    value = Encoder(ORDER, 1).encode(pa.array([{**EMPTY, **member}], kind.arrow))[0].as_py()
    assert decoded(ORDER, value) == ([{**EMPTY, **member}], [None])


def test_an_untyped_null_is_an_absent_field() -> None:
    """Spark's NULL AS item."""
    of_columns = pa.struct([("item", pa.null()), ("at", pa.null()), ("place", pa.null()), ("id", pa.int64())])
    values = Encoder(ORDER, 1).encode(pa.array([{"item": None, "at": None, "place": None, "id": 1}], of_columns))
    assert decoded(ORDER, values[0].as_py()) == ([{**EMPTY, "id": 1}], [None])


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ({"a_b": INT, "aB": INT}, "from the columns a_b, aB: .*duplicate json_name"),
        ({"a": INT, "_a": INT}, "from the columns a, _a: .*duplicate field name"),
        ({"s": columns(x=INT, X=INT)}, "from the columns s: field s has fields that differ only in case"),
    ],
)
def test_columns_whose_derived_schema_is_not_valid_are_named(kinds: dict[str, T.DataType], words: str) -> None:
    with pytest.raises(JobError, match=words) as e:
        protobuf.derived_schema("s-value", columns(**kinds).fields, lambda: None)
    assert e.value.reason is Reason.INVALID_TRANSFORM


def test_columns_without_a_type_in_protobuf() -> None:
    nested, keys = T.ArrayType(T.ArrayType(INT)), T.MapType(T.DoubleType(), INT)
    kinds = columns(d=T.DateType(), n=T.DecimalType(3, 1), aa=nested, m=keys, **{"a b": INT})
    assert len(list(protobuf_types.column_problems(kinds.fields))) == 5


# ------------------------------------------------ whatever is written

_PLACES = st.fixed_dictionaries(
    {}, optional={"x": st.floats(width=32, allow_nan=False), "name": st.text(max_size=2), "code": st.binary(max_size=2)}
)
_INT32, _UINT64 = st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**64 - 1)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-(2**63), 2**63 - 1),
    "item": st.text(max_size=3),
    "at": st.fixed_dictionaries({"seconds": st.integers(-(2**33), 2**35), "nanos": st.integers(0, 999_999_999)}),
    "counts": st.lists(_INT32, max_size=3),
    "places": st.dictionaries(st.text(max_size=2), _PLACES, max_size=2),
    "kind": st.sampled_from([0, 1, -2, 77]),
    "place": _PLACES,
    "number": st.integers(0, 2**32 - 1),
    "there": _PLACES,
    "wrapped": st.fixed_dictionaries({"value": st.integers(-(2**63), 2**63 - 1)}),
    "big": _UINT64,
    "flag": st.booleans(),
    "all_places": st.lists(_PLACES, max_size=2),
    "by_number": st.dictionaries(_INT32, _UINT64, max_size=2),
    "kinds": st.lists(st.sampled_from([0, 1, -2, 77]), max_size=2),
    "d": st.floats(allow_nan=False),
    "s": st.integers(-(2**63), 2**63 - 1),
    "u": st.integers(0, 2**32 - 1),
}


@settings(max_examples=60)
@given(st.fixed_dictionaries({}, optional=_VALUES), st.fixed_dictionaries({}, optional=_VALUES))
def test_what_is_written_is_read_by_the_job_and_by_the_audit(fields: dict[str, Any], more: dict[str, Any]) -> None:
    """Two messages one after the other are merged, which is also one message."""
    one, two = MESSAGE(**fields).SerializeToString(), MESSAGE(**more).SerializeToString()
    records, problems = decoded(ORDER, framed(one), framed(one + two))
    assert problems == [None, None]
    known = {**records[0], "kind": "NONE", "kinds": []}  # the encoder refuses numbers without a name
    kind = protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(ORDER)))
    value = Encoder(ORDER, 1).encode(pa.array([known], kind.arrow))[0].as_py()
    assert repr(decoded(ORDER, value)[0]) == repr([known])
    expected = audit_protobuf._of_columns(
        audit_protobuf._file(ORDER), audit_values.values(pa.array([known], kind.arrow))[0]
    )
    assert audit_values.text(expected) == audit_protobuf.text(audit_protobuf.decoder(ORDER, None)(value, 5))


@settings(max_examples=120)
@given(st.binary(max_size=24), st.fixed_dictionaries({}, optional=_VALUES), st.integers(0, 60))
@example(bytes.fromhex("d0e3dafbde0e7f"), {}, 0)  # a tag with more than 32 bits
@example(b"\x58" + b"\x85" * 9 + b"\x59", {}, 0)  # a value with more than 64 bits
@example(bytes.fromhex("8880808080007f"), {}, 0)  # and one in more than five bytes
@example(bytes.fromhex("2a040a000800"), {}, 0)  # an entry of a map with a key of another type
@example(bytes.fromhex("2a040a001800"), {}, 0)  # and with a third field
def test_job_and_audit_agree_on_any_bytes(noise: bytes, fields: dict[str, Any], cut: int) -> None:
    data = MESSAGE(**fields).SerializeToString()
    decoded(ORDER, framed(noise), framed(data[:cut] + noise), framed(data + noise))
