"""JSON with a schema as the audit reads it: by a validator and a conversion that it does not share with the job.

Two values are equal if their properties are: a null and an absent property are the same, and numbers are compared by
their digits.
"""

from __future__ import annotations

import base64
import decimal
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import jsonschema
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from referencing import Registry
from referencing.exceptions import Unresolvable

from ackwright_stream.audit_values import DIGITS, Undecodable
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

TYPE = "JSON"
_COLUMNS = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_PYTHON: Mapping[str, Any] = {"boolean": bool, "string": str, "array": list, "object": dict}
_INT64 = range(-(2**63), 2**63)


def column_type(schema: str) -> pa.DataType:
    """The columns of a reader's schema, which the driver has accepted, as a struct."""
    document = json.loads(schema)
    return _arrow(document, document)


def decoder(writer: str, reader: str | None) -> Callable[[bytes, int], Any]:
    """A function that decodes a record from bytes at a position to their end. Both raise Undecodable.

    reader: the schema whose columns the record is for; None: it stays as it was parsed, with numbers as Decimal.
    """
    try:
        validator = _validator(json.loads(writer))
    except ValueError as e:
        raise Undecodable(str(e)) from None
    target = json.loads(reader) if reader is not None else None

    def decode(data: bytes, start: int) -> Any:
        try:
            text = data[start:].decode("utf-8")
            value = json.loads(text, parse_constant=_refuse)
            json.dumps(value, ensure_ascii=False).encode()  # a text with half of a surrogate pair is none
            valid = validator.is_valid(value)
        except (ValueError, RecursionError, Unresolvable) as e:
            raise Undecodable(str(e)) from None
        except re.error as e:
            raise JobError(
                Reason.SCHEMA_INCOMPATIBLE,
                f"the audit cannot judge records of a JSON Schema whose pattern Python does not read: "
                f"{e.pattern!r:.80}; write it with what ECMAScript and Python have in common",
            ) from None
        if not valid:
            raise Undecodable("it does not fit its schema")
        if target is None:
            return json.loads(text, parse_float=decimal.Decimal, parse_int=decimal.Decimal)
        return _column_value(value, target, target)

    return decode


def _validator(schema: Any) -> Any:
    kind = jsonschema.Draft7Validator
    if isinstance(schema, dict) and "$schema" in schema:
        kind = jsonschema.validators.validator_for(schema, default=None)
        if kind is None or kind is jsonschema.Draft3Validator:
            raise Undecodable("a schema of an unknown draft")
    try:
        # Without formats: a pattern is no regular expression of Python, and its records are not malformed for it.
        kind.check_schema(schema, format_checker=jsonschema.FormatChecker(formats=()))
    except jsonschema.SchemaError as e:
        raise Undecodable(str(e)) from None
    return kind(schema, registry=Registry())  # which retrieves nothing


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


# ------------------------------------------------ columns of the reader


def _resolved(schema: Mapping[str, Any], document: Any) -> tuple[Mapping[str, Any], str, bool]:
    """A schema without references and unions with null; its type; whether null is allowed."""
    while "$ref" in schema:
        target = document
        for part in str(schema["$ref"]).lstrip("#").split("/")[1:]:
            target = target[part.replace("~1", "/").replace("~0", "~")]
        schema = target
    for union in ("oneOf", "anyOf"):
        if union in schema:
            (other,) = [s for s in schema[union] if s.get("type") != "null"]
            inner, kind, nullable = _resolved(other, document)
            return inner, kind, nullable or len(schema[union]) > 1
    names = schema.get("type")
    if names is None:
        constants = schema.get("enum", [schema.get("const")])
        return schema, "string", None in constants
    names = [names] if isinstance(names, str) else names
    others = [name for name in names if name != "null"]
    return schema, "number" if "number" in others else others[0], "null" in names


def _arrow(schema: Mapping[str, Any], document: Any) -> pa.DataType:
    schema, kind, _ = _resolved(schema, document)
    if kind == "array":
        return pa.list_(_arrow(schema["items"], document))
    if kind == "object":
        if schema.get("properties"):
            return pa.struct([(name, _arrow(s, document)) for name, s in schema["properties"].items()])
        return pa.map_(pa.string(), _arrow(_values_of(schema), document))
    return _COLUMNS[kind]


def _values_of(schema: Mapping[str, Any]) -> Any:
    return schema["additionalProperties"] if "additionalProperties" in schema else schema["unevaluatedProperties"]


def _column_value(value: Any, schema: Mapping[str, Any], document: Any) -> Any:
    schema, kind, nullable = _resolved(schema, document)
    if value is None:
        if not nullable:
            raise Undecodable("a null that the reader does not allow")
        return None
    if kind in ("integer", "number"):
        return _number(value, kind)
    if not isinstance(value, _PYTHON[kind]):
        raise Undecodable(f"no {kind}")
    if kind == "array":
        return [_column_value(v, schema["items"], document) for v in value]
    if kind == "object":
        properties = schema.get("properties")
        if not properties:
            return [(name, _column_value(v, _values_of(schema), document)) for name, v in value.items()]
        if set(schema.get("required", ())) - value.keys():
            raise Undecodable("a property is missing that the reader requires")
        return {name: _column_value(value[name], s, document) for name, s in properties.items() if name in value}
    return value


def _number(value: Any, kind: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Undecodable(f"no {kind}")
    try:
        number = float(value) if kind == "number" else int(value)
    except OverflowError:
        raise Undecodable("a number beyond 64 bits") from None
    if kind == "integer" and (number != value or number not in _INT64):
        raise Undecodable("no integer of 64 bits")
    if kind == "number" and number in (float("inf"), float("-inf")):
        raise Undecodable("a number beyond 64 bits")
    return number


# ------------------------------------------------ content as text


def text(record: Any) -> bytes:
    """The content of a record that was decoded for no reader."""
    return json.dumps(_content(record), sort_keys=True, ensure_ascii=True).encode()


def _content(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _content(v) for name, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_content(v) for v in value]
    return {"number": str(value.normalize(DIGITS))} if isinstance(value, decimal.Decimal) else value


def text_of_columns(record: Column, kind: T.StructType, schema: str | None) -> Column:
    """The content of records. Spark writes numbers and times as texts, of which their JSON is made here."""

    def convert(records: pa.Array) -> pa.Array:
        rows = (None if row is None else text(_parsed(row, kind)) for row in records.to_pylist())
        return pa.array(list(rows), pa.binary())

    return F.arrow_udf(convert, "binary")(record.cast(_as_texts(kind)))


def _as_texts(kind: T.DataType) -> T.DataType:
    """A type with STRING in place of numbers and times."""
    if isinstance(kind, T.StructType):
        return T.StructType([T.StructField(f.name, _as_texts(f.dataType)) for f in kind.fields])
    if isinstance(kind, T.ArrayType):
        return T.ArrayType(_as_texts(kind.elementType))
    if isinstance(kind, T.MapType):
        return T.MapType(T.StringType(), _as_texts(kind.valueType))
    return kind if isinstance(kind, T.BooleanType | T.BinaryType) else T.StringType()


def _parsed(value: Any, kind: T.DataType) -> Any:
    """A value whose numbers and times are texts, as it is parsed from JSON."""
    if value is None or isinstance(kind, T.BooleanType):
        return value
    if isinstance(kind, T.StructType):
        return {f.name: _parsed(value[f.name], f.dataType) for f in kind.fields}
    if isinstance(kind, T.ArrayType):
        return [_parsed(v, kind.elementType) for v in value]
    if isinstance(kind, T.MapType):
        return {name: _parsed(v, kind.valueType) for name, v in value}
    if isinstance(kind, T.BinaryType):
        return base64.b64encode(value).decode()
    if isinstance(kind, T.NumericType):
        return decimal.Decimal(value)
    if isinstance(kind, T.TimestampType | T.TimestampNTZType):
        day, time = value.split(" ")
        seconds, _, fraction = time.partition(".")
        zone = "Z" if isinstance(kind, T.TimestampType) else ""
        return f"{day}T{seconds}.{fraction.ljust(6, '0')}{zone}"
    return value
