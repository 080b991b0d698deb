"""JSON with a schema: its types, what is malformed, what is written, and the audit's reader beside the job's."""

from __future__ import annotations

import json
import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from ackwright_stream import audit_json_schema
from ackwright_stream.audit_values import Undecodable
from ackwright_stream.errors import JobError
from ackwright_stream.formats import json_schema, json_schema_types
from ackwright_stream.formats.json_schema_values import Decoder, Encoder
from ackwright_stream.formats.registered import Unsupported
from ackwright_stream.jobspec import Reason


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


INT, TEXT = {"type": "integer"}, {"type": "string"}
ORDER = closed(
    ("id",),
    id=INT,
    price={"type": ["number", "null"]},
    tags={"type": "array", "items": TEXT},
    counts={"type": "object", "additionalProperties": INT},
    kind={"enum": ["a", "b", None]},
    place=closed(x={"oneOf": [{"type": "null"}, {"$ref": "#/definitions/n"}]}),
) | {"definitions": {"n": {"type": "number", "minimum": 0}}}


def framed(value: Any, schema_id: int = 1) -> bytes:
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack(">bI", 0, schema_id) + text


def decoded(schema: Any, *values: bytes | None, writer: Any = None) -> tuple[list[Any], list[str | None]]:
    """What the job reads; the audit must read the same."""
    reader, text = json.dumps(schema), json.dumps(schema if writer is None else writer)
    records, problems = Decoder(reader, lambda _: {1: text}).decode(pa.array(values, pa.binary()))
    assert records.type == json_schema_types.read(reader).arrow
    kind = audit_json_schema.column_type(reader)
    for value, record, problem in zip(values, records, problems, strict=True):
        if value is None or struct.unpack_from(">bI", value.ljust(5, b"\1")) != (0, 1):
            continue
        if problem is None:
            assert pa.array([audit_json_schema.decoder(text, reader)(value, 5)], kind).to_pylist() == [record.as_py()]
        else:
            with pytest.raises(Undecodable):
                audit_json_schema.decoder(text, reader)(value, 5)
    return records.to_pylist(), problems


def test_a_record_of_every_type() -> None:
    value = {"id": 1, "price": 2.5, "tags": ["x"], "counts": {"n": 3}, "kind": "a", "place": {"x": 1}}
    assert json_schema_types.read(json.dumps(ORDER)).spark.simpleString() == (
        "struct<id:bigint,price:double,tags:array<string>,counts:map<string,bigint>,kind:string,place:struct<x:double>>"
    )
    records, problems = decoded(ORDER, framed(value), None, framed({"id": 2, "kind": None}), framed({"id": 3.0}))
    assert problems == [None] * 4
    assert records[0] == {**value, "counts": [("n", 3)], "place": {"x": 1.0}}
    assert records[1] is None
    assert records[2] == {"id": 2, "price": None, "tags": None, "counts": None, "kind": None, "place": None}
    assert records[3]["id"] == 3


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "0 bytes and no schema id"),
        (b"{}", "2 bytes and no schema id"),
        (b'{"id": 1}', "its first byte is 123 and not 0"),
        (framed({"id": 1}, 9), "the registry has no schema 9"),
        (framed(b"{"), "it is not JSON"),
        (framed(b""), "it is not JSON"),
        (framed(b'{"id": 1} {}'), "it is not JSON: Extra data"),
        (framed(b'{"id": 1, "price": NaN}'), "NaN is no JSON value"),
        (framed(b'{"id": 1, "kind": "\xff"}'), "it is not JSON"),
        (framed('{"id": 1}'.encode("utf-16")), "it is not JSON"),
        (framed(b"[" * 100_000), "it is not JSON"),
        (framed({"id": "1"}), 'it does not fit schema 1: $.id: "1" is not of type "integer"'),
        (framed({}), 'it does not fit schema 1: $: "id" is a required property'),
        (framed({"id": 1, "other": 2}), "it does not fit schema 1: $: Additional properties are not allowed"),
        (framed({"id": 1, "place": {"x": -1}}), "it does not fit schema 1: $.place.x"),
        (framed({"id": True}), "it does not fit schema 1"),
        (framed({"id": 2**63}), "$.id is an integer beyond 64 bits"),
        (framed(b'{"id": 1, "price": 1e999}'), "it does not fit schema 1"),
        (framed({"id": 1, "price": 10**400}), "$.price is a number beyond 64 bits"),
        (framed(b'{"id": 1, "tags": ["\\ud800"]}'), "it is not JSON"),
    ],
)
def test_malformed(value: bytes, words: str) -> None:
    records, problems = decoded(ORDER, framed({"id": 7}), value)
    assert problems[0] is None, "the other records of the batch are read"
    assert records[1] is None
    assert words in str(problems[1])


def test_a_record_of_another_writer_is_read_into_the_readers_columns() -> None:
    newer = closed(("id", "new"), id=INT, new=TEXT)
    assert decoded(closed(("id",), id=INT), framed({"id": 1, "new": "x"}), writer=newer) == ([{"id": 1}], [None])
    (records, problems) = decoded(newer, framed({"id": 1}), writer=closed(id=INT))
    assert (records, problems) == ([None], ["$ lacks new, which the reader's schema requires"])
    wider = {"type": "object", "properties": {"id": {"type": ["integer", "string", "null"]}}}
    values = [framed({"id": 5}), framed({"id": "5"}), framed({"id": None}), framed([])]
    records, problems = decoded(closed(id=INT), *values, writer=wider)
    assert records == [{"id": 5}, None, None, None]
    assert "the reader's schema has the type integer" in str(problems[1])
    assert "$.id is null" in str(problems[2])


@pytest.mark.parametrize(
    "writer", ["{", '{"type": "x"}', '{"$schema": "http://nowhere/schema"}', '{"$ref": "http://127.0.0.1:1/"}']
)
def test_a_writers_schema_that_is_none(writer: str) -> None:
    """It makes its records malformed, and sends no request."""
    records, problems = Decoder(json.dumps(ORDER), lambda _: {1: writer}).decode(pa.array([framed({"id": 1})]))
    assert records.to_pylist() == [None]
    assert "its schema 1 cannot be used" in str(problems[0])
    with pytest.raises(Undecodable):
        audit_json_schema.decoder(writer, None)(framed({"id": 1}), 5)


def test_a_pattern_that_only_the_jobs_validator_reads() -> None:
    """The audit says so, and does not call the records malformed."""
    schema = json.dumps(closed(a={"type": "string", "pattern": "^\\p{Lu}"}))
    records, problems = Decoder(schema, lambda _: {1: schema}).decode(
        pa.array([framed({"a": "É"}), framed({"a": "e"})])
    )
    assert records.to_pylist() == [{"a": "É"}, None]
    assert problems[0] is None
    with pytest.raises(JobError, match="whose pattern Python does not read"):
        audit_json_schema.decoder(schema, schema)(framed({"a": "x"}), 5)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (True, "$ is true, which allows any type"),
        ({"type": "string"}, "its top, $, is not a closed object"),
        ({"type": ["object", "null"], "properties": {"a": INT}, "additionalProperties": False}, "its top, $"),
        ({"type": "object", "properties": {"a": INT}}, "$ is an object that may have properties besides"),
        (closed(a={}), "$.a has no type"),
        (closed(a={"type": ["string", "integer"]}), "$.a has 2 types besides null"),
        (closed(a={"type": "date"}), "$.a has the type 'date'"),
        (closed(a={"enum": [1, "x"]}), "$.a has no type, and values that are no texts"),
        (closed(a={"oneOf": [INT, TEXT]}), "$.a has oneOf"),
        (closed(a={"anyOf": [INT], "type": "integer"}), "$.a has anyOf"),
        (closed(a={"allOf": [INT]}), "$.a has allOf"),
        (closed(a={"type": "array"}), "$.a[] is true"),
        (closed(a={"type": "array", "items": [INT, TEXT]}), "$.a is an array with a type for each place"),
        (closed(a={"type": "array", "prefixItems": [INT]}), "$.a has prefixItems"),
        (closed(a={"type": "object", "patternProperties": {"x": INT}}), "$.a has patternProperties"),
        (closed(a={"$ref": "http://elsewhere/x"}), "$.a refers to 'http://elsewhere/x'"),
        (closed(a={"$ref": "#/definitions/x"}), "$.a refers to '#/definitions/x', which is not in the schema"),
        (closed(a={"$ref": "#"}), "$.a.a is # again: recursive"),
        (closed(a=closed()), "$.a is an object without properties"),
        (closed(a=INT, A=INT), "$ has properties that differ only in case: A, a"),
        (closed(("b",), a=INT), "$ requires b"),
    ],
)
def test_a_schema_without_certain_columns_is_refused_by_name(schema: Any, words: str) -> None:
    with pytest.raises(Unsupported) as e:
        json_schema_types.read(json.dumps(schema))
    assert words in str(e.value)


def test_a_declared_schema_and_the_columns() -> None:
    fields = [T.StructField("id", T.IntegerType()), T.StructField("kind", T.NullType())]
    kind = json_schema_types.read(json.dumps(ORDER))
    assert list(json_schema_types.mismatches(T.StructType(fields), kind)) == []
    wrong = [T.StructField("price", T.StringType()), T.StructField("extra", T.LongType())]
    problems = "; ".join(json_schema_types.mismatches(T.StructType(wrong), kind))
    assert "the schema requires the property id" in problems
    assert "the output has the column extra" in problems
    assert "column price is STRING, which does not fit JSON's number" in problems
    assert "counts" not in problems, "an optional property needs no column"


def test_a_null_column_is_written_in_one_way() -> None:
    def omits(schema: Any) -> bool:
        return json_schema_types.omits_nulls(json_schema_types.read(json.dumps(schema)))

    assert not omits(closed(("id",), id=INT, a={"type": ["null", "integer"]}))
    assert omits(closed(("id",), id=INT, a=INT))
    with pytest.raises(Unsupported, match=r"\$\.b must be present and may be null, and \$\.a must not be null"):
        omits(closed(("b",), a=INT, b={"type": ["null", "integer"]}))


def test_columns_without_a_json_type() -> None:
    fields = [T.StructField("m", T.MapType(T.LongType(), T.LongType())), T.StructField("i", T.DayTimeIntervalType())]
    assert len(list(json_schema_types.column_problems(fields))) == 2


def test_a_schema_that_was_not_derived_from_the_columns_may_refuse_a_value() -> None:
    """A declared schema takes Spark's NULL AS n, from which none is derived."""
    number, null = T.StructField("i", T.LongType()), T.StructField("n", T.NullType())
    derived = json_schema.derived_schema("s-value", [number], lambda: None)
    assert json_schema._accepts_all(derived, "s-value", [number])
    assert not json_schema._accepts_all(derived, "s-value", [null])
    assert not json_schema._accepts_all(derived, "s-value", [T.StructField("i", T.DoubleType())])


def test_columns_whose_derived_schema_is_not_valid_are_named() -> None:
    lines = T.StructType([T.StructField("a", T.LongType()), T.StructField("A", T.LongType())])
    with pytest.raises(JobError, match=r"from the columns s: \$\.s has properties that differ only in case: A, a") as e:
        json_schema.derived_schema("s-value", [T.StructField("s", lines)], lambda: None)
    assert e.value.reason is Reason.INVALID_TRANSFORM


def test_the_encoder_writes_valid_texts_only() -> None:
    encoder = Encoder(json.dumps(ORDER), 7)
    text = '{"id":1,"price":0.1}'
    assert encoder.encode(pa.array([text, None])).to_pylist() == [framed(text.encode(), 7), None]
    for wrong, words in (('{"id":"x"}', '$.id: "x" is not of type'), ('{"id":1,"price":"NaN"}', "$.price")):
        with pytest.raises(ValueError, match="is not of type") as e:
            encoder.encode(pa.array([wrong]))
        assert words in str(e.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abx", max_size=1), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = {
    "id": st.integers() | st.just(1.0),
    "price": st.floats(allow_nan=False) | st.integers() | st.none(),
    "tags": st.lists(st.text(max_size=2), max_size=2),
    "counts": st.dictionaries(st.text(max_size=2), st.integers(-(2**70), 2**70), max_size=2),
    "kind": st.sampled_from(["a", "b", "c", None]),
    "place": st.fixed_dictionaries({}, optional={"x": st.none() | st.floats(-1, 1)}),
}


@settings(max_examples=200)
@given(st.fixed_dictionaries({}, optional=_FIELDS) | st.dictionaries(st.sampled_from([*_FIELDS, "z"]), _JSON) | _JSON)
def test_job_and_audit_read_the_same(value: Any) -> None:
    decoded(ORDER, framed(value))
