"""JSON Schemas as a tree, and their Spark and Arrow types. Pure.

Only a schema that names every property has columns: a closed object whose parts have one type each. Anything else is
refused by name when the driver starts. Keywords that only restrict values (pattern, minimum, …) are left to the
validator, and annotations (format, title, …) mean nothing.
https://json-schema.org/draft/2020-12/json-schema-core, https://json-schema.org/draft-07/json-schema-core
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from ackwright_stream.formats.registered import Unsupported

_SCALARS = {
    "boolean": (T.BooleanType(), pa.bool_()),
    "integer": (T.LongType(), pa.int64()),
    "number": (T.DoubleType(), pa.float64()),
    "string": (T.StringType(), pa.string()),
}
# Keywords under which properties or types differ from one value to another, or are in another document.
_REFUSED = (
    *("allOf", "not", "if", "patternProperties", "prefixItems", "additionalItems"),
    *("dependentSchemas", "dependencies", "$dynamicRef", "$recursiveRef"),
)
_CLOSED = ("additionalProperties", "unevaluatedProperties")
DRAFT = "http://json-schema.org/draft-07/schema#"  # of derived schemas, and of schemas that name none


@dataclass(frozen=True)
class JsonType:
    """A type in a schema."""

    kind: str  # a key of _SCALARS, or object, array, map
    nullable: bool = False
    fields: tuple[tuple[str, JsonType], ...] = ()  # of an object: its properties
    required: frozenset[str] = frozenset()  # of an object: the properties that a value must have
    item: JsonType | None = None  # of an array; the values of a map

    @property
    def spark(self) -> T.DataType:
        """The Spark type of its values, every part nullable: a malformed record has nulls only."""
        if self.kind == "object":
            return T.StructType([T.StructField(name, t.spark) for name, t in self.fields])
        if self.kind == "array":
            return T.ArrayType(self.content.spark)
        if self.kind == "map":
            return T.MapType(T.StringType(), self.content.spark)
        return _SCALARS[self.kind][0]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values, as Spark exchanges them."""
        if self.kind == "object":
            return pa.struct([pa.field(name, t.arrow) for name, t in self.fields])
        if self.kind == "array":
            return pa.list_(pa.field("element", self.content.arrow))
        if self.kind == "map":
            return pa.map_(pa.string(), self.content.arrow)
        return _SCALARS[self.kind][1]

    @property
    def content(self) -> JsonType:
        """The type of an array's items or a map's values."""
        if self.item is None:
            raise TypeError(f"{self.kind} has no items")
        return self.item


def load(text: str) -> Any:
    """A schema's JSON. Raises Unsupported."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Unsupported(f"it is not JSON: {e}") from None


def read(text: str) -> JsonType:
    """The tree of a schema whose top is a closed object. Raises Unsupported."""
    document = load(text)
    top = _Reader(document).read(document, "$", ())
    if top.kind != "object" or top.nullable:
        raise Unsupported("its top, $, is not a closed object; wrap it into one")
    return top


@dataclass(frozen=True)
class _Reader:
    """Reads one document. References lead to places of the same document."""

    document: Any

    def read(self, schema: Any, path: str, open_refs: tuple[str, ...]) -> JsonType:
        if not isinstance(schema, Mapping):
            raise Unsupported(f"{path} is {json.dumps(schema)[:80]}, which allows any type or none")
        if "$ref" in schema:
            return self._referred(schema["$ref"], path, open_refs)
        for keyword in _REFUSED:
            if keyword in schema:
                raise Unsupported(f"{path} has {keyword}, so its columns are not certain")
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                return self._union(schema, keyword, path, open_refs)
        kinds = _kinds(schema, path)
        kind, nullable = _only(kinds, path), "null" in kinds
        if kind == "object":
            return replace(self._object(schema, path, open_refs), nullable=nullable)
        if kind == "array":
            return JsonType("array", nullable, item=self._items(schema, path, open_refs))
        return JsonType(kind, nullable)

    def _referred(self, ref: Any, path: str, open_refs: tuple[str, ...]) -> JsonType:
        if ref in open_refs:
            raise Unsupported(f"{path} is {ref} again: recursive types have no columns")
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise Unsupported(f"{path} refers to {ref!r:.80}, and only references inside the schema are supported")
        target = self.document
        for part in ref.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or name not in target:
                raise Unsupported(f"{path} refers to {ref!r:.80}, which is not in the schema")
            target = target[name]
        return self.read(target, path, (*open_refs, ref))

    def _union(self, schema: Mapping[str, Any], keyword: str, path: str, open_refs: tuple[str, ...]) -> JsonType:
        """A type or null, as generators write it."""
        shaping = {"type", "properties", "items", "enum", "const", "oneOf", "anyOf", *_CLOSED} & schema.keys()
        branches = schema[keyword]
        others = [b for b in branches if not (isinstance(b, Mapping) and b.get("type") == "null")]
        if len(shaping) > 1 or len(others) != 1:
            raise Unsupported(f"{path} has {keyword}, and only {keyword} of null and one other type is supported")
        kind = self.read(others[0], path, open_refs)
        return replace(kind, nullable=kind.nullable or len(branches) > 1)

    def _object(self, schema: Mapping[str, Any], path: str, open_refs: tuple[str, ...]) -> JsonType:
        properties = schema.get("properties") or {}
        others = next((schema[name] for name in _CLOSED if name in schema), True)
        if isinstance(others, Mapping) and not properties:
            return JsonType("map", item=self.read(others, f"{path}{{}}", open_refs))
        if others is not False:
            raise Unsupported(
                f"{path} is an object that may have properties besides those that it names; "
                "add additionalProperties: false"
            )
        if not properties:
            raise Unsupported(f"{path} is an object without properties")
        lower = [name.lower() for name in properties]
        if twice := sorted(name for name in properties if lower.count(name.lower()) > 1):
            raise Unsupported(f"{path} has properties that differ only in case: {', '.join(twice)}")
        fields = tuple((name, self.read(s, f"{path}.{name}", open_refs)) for name, s in properties.items())
        required = frozenset(schema.get("required") or ())
        if missing := sorted(required - properties.keys()):
            raise Unsupported(f"{path} requires {', '.join(missing)}, and allows no such property")
        return JsonType("object", fields=fields, required=required)

    def _items(self, schema: Mapping[str, Any], path: str, open_refs: tuple[str, ...]) -> JsonType:
        items = schema.get("items", True)
        if isinstance(items, list):
            raise Unsupported(f"{path} is an array with a type for each place")
        return self.read(items, f"{path}[]", open_refs)


def _kinds(schema: Mapping[str, Any], path: str) -> set[str]:
    """The names of a schema's types, with null."""
    declared = schema.get("type")
    if declared is not None:
        return set(map(str, declared)) if isinstance(declared, list) else {str(declared)}
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    if values is None:
        raise Unsupported(f"{path} has no type")
    if not all(value is None or isinstance(value, str) for value in values):
        raise Unsupported(f"{path} has no type, and values that are no texts")
    return {"null" if value is None else "string" for value in values}


def _only(kinds: set[str], path: str) -> str:
    others = sorted(kinds - {"null"})
    if others == ["integer", "number"]:
        return "number"
    if len(others) != 1:
        raise Unsupported(f"{path} has {len(others)} types besides null; only one is supported")
    if others[0] not in (*_SCALARS, "object", "array"):
        raise Unsupported(f"{path} has the type {others[0]!r:.40}, which JSON Schema does not have")
    return others[0]


# ------------------------------------------------ from columns to a schema

_OF_SPARK: Sequence[tuple[type[T.DataType], Mapping[str, Any]]] = (
    (T.BooleanType, {"type": "boolean"}),
    (T.ByteType, {"type": "integer"}),
    (T.ShortType, {"type": "integer"}),
    (T.IntegerType, {"type": "integer"}),
    (T.LongType, {"type": "integer"}),
    (T.FloatType, {"type": "number"}),
    (T.DoubleType, {"type": "number"}),
    (T.DecimalType, {"type": "number"}),
    (T.StringType, {"type": "string"}),
    (T.BinaryType, {"type": "string", "contentEncoding": "base64"}),
    (T.DateType, {"type": "string", "format": "date"}),
    (T.TimestampType, {"type": "string", "format": "date-time"}),
    (T.TimestampNTZType, {"type": "string"}),
)


def of_columns(fields: Sequence[T.StructField], title: str) -> str:
    """The schema of an object with these columns, as JSON. The columns must have no column_problems().

    It is closed, and every property may be null or absent: so columns can be added under the compatibility level
    BACKWARD, the default.
    """
    return json.dumps({"$schema": DRAFT, "title": title, **_object(fields)}, separators=(",", ":"))


def _object(fields: Sequence[T.StructField]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {f.name: _or_null(_of_spark(f.dataType)) for f in fields},
        "additionalProperties": False,
    }


def _or_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {**schema, "type": ["null", schema["type"]]}


def _of_spark(kind: T.DataType) -> Mapping[str, Any]:
    if isinstance(kind, T.StructType):
        return _object(kind.fields)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": _or_null(_of_spark(kind.elementType))}
    if isinstance(kind, T.MapType):
        return {"type": "object", "additionalProperties": _or_null(_of_spark(kind.valueType))}
    return next(schema for spark, schema in _OF_SPARK if isinstance(kind, spark))


def column_problems(fields: Sequence[T.StructField], path: str = "") -> Iterator[str]:
    """Why a schema cannot be derived from these columns."""
    for f in fields:
        yield from _type_problems(f.dataType, _join(path, f.name))


def _type_problems(kind: T.DataType, at: str) -> Iterator[str]:
    if isinstance(kind, T.StructType):
        yield from column_problems(kind.fields, at)
    elif isinstance(kind, T.ArrayType):
        yield from _type_problems(kind.elementType, f"{at}[]")
    elif isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            yield f"column {at!r} is a map whose keys are not STRING, as JSON requires"
        yield from _type_problems(kind.valueType, f"{at}{{}}")
    elif not isinstance(kind, tuple(spark for spark, _ in _OF_SPARK)):
        yield f"column {at!r} is {kind.simpleString().upper()}, which JSON does not have; cast it"


# ------------------------------------------------ columns for a declared schema

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FITTING: Mapping[str, tuple[type[T.DataType], ...]] = {
    "boolean": (T.BooleanType,),
    "integer": _INTEGERS,
    "number": (*_INTEGERS, T.FloatType, T.DoubleType, T.DecimalType),
    "string": (T.StringType, T.BinaryType, T.DateType, T.TimestampType, T.TimestampNTZType),
}


def mismatches(kind: T.DataType, schema: JsonType, at: str = "") -> Iterator[str]:
    """Why values of a Spark type cannot be written as this type."""
    if isinstance(kind, T.StructType) and schema.kind == "object":
        columns, fields = {f.name: f.dataType for f in kind.fields}, dict(schema.fields)
        for name in sorted(schema.required - columns.keys()):
            yield f"the schema requires the property {_join(at, name)}, and the output has no such column"
        for name in sorted(columns.keys() - fields.keys()):
            yield f"the output has the column {_join(at, name)}, and the schema has no such property"
        for name in sorted(columns.keys() & fields.keys()):
            if not isinstance(columns[name], T.NullType):
                yield from mismatches(columns[name], fields[name], _join(at, name))
    elif isinstance(kind, T.ArrayType) and schema.kind == "array":
        yield from mismatches(kind.elementType, schema.content, f"{at}[]")
    elif isinstance(kind, T.MapType) and schema.kind == "map" and isinstance(kind.keyType, T.StringType):
        yield from mismatches(kind.valueType, schema.content, f"{at}{{}}")
    elif not isinstance(kind, _FITTING.get(schema.kind, ())):
        yield f"column {at} is {kind.simpleString().upper()}, which does not fit JSON's {schema.kind}; cast it"


def omits_nulls(schema: JsonType) -> bool:
    """Whether a null column is left out of an object; otherwise it is written as null. Raises Unsupported.

    Left out, if a property may be absent but not null: then no property may be required and null.
    """
    absent, null = sorted(_properties(schema, required=False)), sorted(_properties(schema, required=True))
    if absent and null:
        raise Unsupported(
            f"{null[0]} must be present and may be null, and {absent[0]} must not be null and may be absent, so a null "
            f"column would be written in two ways; remove {null[0]} from required, or let {absent[0]} be null"
        )
    return bool(absent)


def _properties(schema: JsonType, at: str = "$", *, required: bool) -> Iterator[str]:
    """The paths of properties that are required and may be null, or that are neither."""
    for name, kind in schema.fields:
        if (name in schema.required) is required and kind.nullable is required:
            yield f"{at}.{name}"
        yield from _properties(kind, f"{at}.{name}", required=required)
    if schema.item:
        yield from _properties(schema.item, f"{at}[]", required=required)


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
