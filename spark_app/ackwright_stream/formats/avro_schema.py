"""Avro schemas as a tree, and their Spark and Arrow types. Pure.

Only what both Avro and Spark can hold is supported; anything else is refused by name when the driver starts.
https://avro.apache.org/docs/1.12.0/specification/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from ackwright_stream.formats.registered import Unsupported

_PRIMITIVE = {
    "boolean": (T.BooleanType(), pa.bool_()),
    "int": (T.IntegerType(), pa.int32()),
    "long": (T.LongType(), pa.int64()),
    "float": (T.FloatType(), pa.float32()),
    "double": (T.DoubleType(), pa.float64()),
    "bytes": (T.BinaryType(), pa.binary()),
    "string": (T.StringType(), pa.string()),
    "enum": (T.StringType(), pa.string()),
    "fixed": (T.BinaryType(), pa.binary()),
}
# Logical types by what they annotate, with Spark's and Arrow's types. Others are ignored, as Avro requires of a reader
# that does not know them: the value is the annotated type's.
_LOGICAL = {
    ("int", "date"): (T.DateType(), pa.date32()),
    ("long", "timestamp-millis"): (T.TimestampType(), pa.timestamp("us", "UTC")),
    ("long", "timestamp-micros"): (T.TimestampType(), pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): (T.TimestampNTZType(), pa.timestamp("us")),
    ("long", "local-timestamp-micros"): (T.TimestampNTZType(), pa.timestamp("us")),
}
# Avro's other logical types. Their values are the annotated type's, too, but no values of the logical types above.
_IGNORED = {
    *(("int", "time-millis"), ("long", "time-micros"), ("long", "timestamp-nanos"), ("long", "local-timestamp-nanos")),
    *(("bytes", "big-decimal"), ("string", "uuid"), ("fixed", "uuid"), ("fixed", "duration")),
}
LONGEST_DECIMAL = 38  # digits of Spark's DECIMAL and of Arrow's decimal128
NAMED = ("record", "enum", "fixed")
LOGICAL = "logical"  # the attribute with which physical() names a logical type; decimals differ by their scale only


@dataclass(frozen=True)
class AvroType:
    """A type in a schema; a union with null is the other type, nullable."""

    kind: str  # a key of _PRIMITIVE, or record, array, map
    nullable: bool = False
    logical: str | None = None  # only one that is supported: of _LOGICAL, or decimal
    precision: int = 0  # of a decimal
    scale: int = 0
    size: int = 0  # of a fixed
    symbols: tuple[str, ...] = ()  # of an enum
    fields: tuple[tuple[str, AvroType], ...] = ()  # of a record
    item: AvroType | None = None  # of an array; the values of a map

    @property
    def spark(self) -> T.DataType:
        """The Spark type of its values, every part nullable: a malformed record has nulls only."""
        if self.kind == "record":
            return T.StructType([T.StructField(name, t.spark) for name, t in self.fields])
        if self.kind == "array":
            return T.ArrayType(self.content.spark)
        if self.kind == "map":
            return T.MapType(T.StringType(), self.content.spark)
        if self.logical == "decimal":
            return T.DecimalType(self.precision, self.scale)
        return (_LOGICAL[self.kind, self.logical] if self.logical else _PRIMITIVE[self.kind])[0]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values, as Spark exchanges them."""
        if self.logical == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.logical:
            return _LOGICAL[self.kind, self.logical][1]
        return self._nested(lambda t: t.arrow)

    @property
    def physical(self) -> pa.DataType:
        """The Arrow type of the values as Avro stores them, without logical types."""
        return self._nested(lambda t: t.physical)

    @property
    def content(self) -> AvroType:
        """The type of an array's items or a map's values."""
        if self.item is None:
            raise TypeError(f"{self.kind} has no items")
        return self.item

    def _nested(self, below: Any) -> pa.DataType:
        if self.kind == "record":
            return pa.struct([pa.field(name, below(t)) for name, t in self.fields])
        if self.kind == "array":
            return pa.list_(pa.field("element", below(self.content)))
        if self.kind == "map":
            return pa.map_(pa.string(), below(self.content))
        return _PRIMITIVE[self.kind][1]


def read(text: str) -> AvroType:
    """The tree of a schema whose top is a record. Raises Unsupported."""
    schema = load(text)
    try:
        top = _Reader().read(schema, "")
    except Unsupported:
        raise
    except (LookupError, TypeError, AttributeError, ValueError) as e:
        raise Unsupported(f"it is no Avro schema: {type(e).__name__} {e}") from None
    if top.kind != "record" or top.nullable:
        raise Unsupported("its top is not a record; wrap it into one")
    return top


def load(text: str) -> Any:
    """A schema's JSON. Raises Unsupported."""
    try:
        return json.loads(text)
    except ValueError as e:
        raise Unsupported(f"it is not JSON: {e}") from None


def physical(schema: Any) -> Any:
    """The JSON of a schema without attributes that change no bytes, for a library that would apply logical types.

    LOGICAL names the logical types.
    """
    if isinstance(schema, list):
        return [physical(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if isinstance(kind, dict | list):
        return physical(kind)
    attributes = {
        k: schema[k] for k in ("type", "name", "namespace", "aliases", "symbols", "size", "default") if k in schema
    }
    if kind not in NAMED:
        attributes = {"type": kind}
    if logical := _logical(schema):
        attributes[LOGICAL] = logical
    for nested in ("items", "values"):
        if nested in schema:
            attributes[nested] = physical(schema[nested])
    if "fields" in schema:
        attributes["fields"] = [
            {**{k: f[k] for k in ("name", "default", "aliases") if k in f}, "type": physical(f["type"])}
            for f in schema["fields"]
        ]
    return kind if attributes.keys() == {"type"} else attributes


def _logical(schema: Mapping[str, Any]) -> str | None:
    """The logical type of a type, if it is one of Avro's and valid."""
    if _is_decimal(schema):
        return f"decimal with scale {schema.get('scale', 0)}"
    kind, logical = schema["type"], schema.get("logicalType")
    return str(logical) if (kind, logical) in _LOGICAL or (kind, logical) in _IGNORED else None


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    """Whether a type is a decimal; Avro ignores an annotation that is not valid."""
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return (
        schema.get("logicalType") == "decimal"
        and schema["type"] in ("bytes", "fixed")
        and isinstance(precision, int)
        and isinstance(scale, int)
        and 0 <= scale <= precision
    )


def kind_of(schema: Any) -> Any:
    """The kind of a type of physical() that is no union, or the name to which it refers."""
    return schema["type"] if isinstance(schema, dict) else schema


def changed_meaning(written: Any, read: Any) -> tuple[str, str] | None:
    """Both logical types, if a value of the first type means another one in the second; of physical().

    A value without a logical type may get one, and it may lose one: it is the stored number either way. A text is no
    decimal.
    """
    theirs, ours = (t.get(LOGICAL) if isinstance(t, dict) else None for t in (written, read))
    if ours is None or any(ours == ignored for _, ignored in _IGNORED):
        return None
    if theirs is None and kind_of(written) == "string":
        theirs = "string"
    return (theirs, ours) if theirs not in (None, ours) else None


@dataclass
class _Reader:
    """Reads one schema. Named types are defined once and then referred to by name."""

    names: dict[str, AvroType] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)  # records that contain what is read now

    def read(self, schema: Any, path: str, namespace: str = "") -> AvroType:
        if isinstance(schema, str):
            return self._by_name(schema, path, namespace)
        if isinstance(schema, list):
            return self._union(schema, path, namespace)
        if not isinstance(schema, dict) or "type" not in schema:
            raise Unsupported(f"{_at(path)} is not an Avro type: {str(schema)[:80]}")
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.read(kind, path, namespace)
        if kind in NAMED:
            return self._named(schema, path, namespace)
        if kind == "array":
            return AvroType("array", item=self.read(schema.get("items"), f"{path}[]", namespace))
        if kind == "map":
            return AvroType("map", item=self.read(schema.get("values"), f"{path}{{}}", namespace))
        return _with_logical(self.read(kind, path, namespace), schema, path)

    def _by_name(self, name: str, path: str, namespace: str) -> AvroType:
        if name in _PRIMITIVE and name not in NAMED:
            return AvroType(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        if full in self.open:
            raise Unsupported(f"{_at(path)} is {full} again: recursive types have no columns")
        if full not in self.names:
            raise Unsupported(f"{_at(path)} has the type {name}, which is not defined in the schema")
        return self.names[full]

    def _union(self, branches: list[Any], path: str, namespace: str) -> AvroType:
        others = [b for b in branches if b != "null" and not (isinstance(b, dict) and b.get("type") == "null")]
        if len(others) != 1:
            raise Unsupported(f"{_at(path)} is a union of {len(others)} types besides null; only one is supported")
        return replace(self.read(others[0], path, namespace), nullable=len(branches) > 1)

    def _named(self, schema: dict[str, Any], path: str, namespace: str) -> AvroType:
        name = str(schema.get("name", ""))
        if not name:
            raise Unsupported(f"{_at(path)} is a {schema['type']} without a name")
        inner = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace))
        full = name if "." in name or not inner else f"{inner}.{name}"
        if schema["type"] == "record":
            self.open.add(full)
            fields = tuple(
                (str(f["name"]), self.read(f["type"], f"{path}.{f['name']}".lstrip("."), inner))
                for f in schema.get("fields", ())
            )
            self.open.discard(full)
            if not fields:
                raise Unsupported(f"{_at(path)} is a record without fields")
            _require_distinct([n for n, _ in fields], path)
            result = AvroType("record", fields=fields)
        elif schema["type"] == "enum":
            result = AvroType("enum", symbols=tuple(map(str, schema.get("symbols", ()))))
        else:
            result = _with_logical(AvroType("fixed", size=int(schema.get("size", 0))), schema, path)
        self.names[full] = result
        return result


def _with_logical(base: AvroType, schema: Mapping[str, Any], path: str) -> AvroType:
    logical = schema.get("logicalType")
    if _is_decimal(schema):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > LONGEST_DECIMAL:
            raise Unsupported(
                f"{_at(path)} is a decimal of {precision} digits; at most {LONGEST_DECIMAL} are supported"
            )
        return replace(base, logical="decimal", precision=precision, scale=scale)
    return replace(base, logical=str(logical)) if (base.kind, logical) in _LOGICAL else base


def _require_distinct(names: Sequence[str], path: str) -> None:
    lower = [n.lower() for n in names]
    twice = sorted({n for n in names if lower.count(n.lower()) > 1})
    if twice:
        raise Unsupported(f"{_at(path)} has fields that differ only in case: {', '.join(twice)}")


def _at(path: str) -> str:
    return f"field {path}" if path else "the schema"


# ------------------------------------------------ from columns to a schema

_OF_SPARK: Sequence[tuple[type[T.DataType], Any]] = (
    (T.BooleanType, "boolean"),
    (T.ByteType, "int"),
    (T.ShortType, "int"),
    (T.IntegerType, "int"),
    (T.LongType, "long"),
    (T.FloatType, "float"),
    (T.DoubleType, "double"),
    (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.DateType, {"type": "int", "logicalType": "date"}),
    (T.TimestampType, {"type": "long", "logicalType": "timestamp-micros"}),
    (T.TimestampNTZType, {"type": "long", "logicalType": "local-timestamp-micros"}),
)


def of_columns(fields: Sequence[T.StructField], name: str) -> str:
    """The schema of a record with these columns, as JSON. name: of the record.

    Every field is nullable, with null as its default, so that columns can be added and removed under every
    compatibility level. A name of a record that would be there twice gets a number. The columns must have no
    column_problems().
    """
    return json.dumps(_record(fields, name, set()), separators=(",", ":"))


def _record(fields: Sequence[T.StructField], path: str, names: set[str]) -> dict[str, Any]:
    """path: the name of the record if no other one has it. names: of the records before it; it is added."""
    name = next(n for n in (path, *(f"{path}_{i}" for i in range(2, len(names) + 3))) if n not in names)
    names.add(name)
    described = [
        {"name": f.name, "type": ["null", _of_spark(f.dataType, f"{path}_{f.name}", names)], "default": None}
        for f in fields
    ]
    return {"type": "record", "name": name, "fields": described}


def _of_spark(kind: T.DataType, path: str, names: set[str]) -> Any:
    if isinstance(kind, T.StructType):
        return _record(kind.fields, path, names)
    if isinstance(kind, T.ArrayType):
        return {"type": "array", "items": ["null", _of_spark(kind.elementType, path, names)]}
    if isinstance(kind, T.MapType):
        return {"type": "map", "values": ["null", _of_spark(kind.valueType, path, names)]}
    if isinstance(kind, T.DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return next(avro for spark, avro in _OF_SPARK if isinstance(kind, spark))


def column_problems(fields: Sequence[T.StructField], path: str = "") -> Iterator[str]:
    """Why a schema cannot be derived from these columns."""
    for f in fields:
        at = f"{path}.{f.name}".lstrip(".")
        if not (f.name.isidentifier() and f.name.isascii()):
            yield f"column {at!r} is no name in Avro: letters, digits and '_' only; rename it with AS"
        yield from _type_problems(f.dataType, at)


def _type_problems(kind: T.DataType, at: str) -> Iterator[str]:
    if isinstance(kind, T.StructType):
        yield from column_problems(kind.fields, at)
    elif isinstance(kind, T.ArrayType):
        yield from _type_problems(kind.elementType, at)
    elif isinstance(kind, T.MapType):
        if not isinstance(kind.keyType, T.StringType):
            yield f"column {at!r} is a map whose keys are not STRING, as Avro requires"
        yield from _type_problems(kind.valueType, at)
    elif not isinstance(kind, (T.DecimalType, *(spark for spark, _ in _OF_SPARK))):
        yield f"column {at!r} is {kind.simpleString().upper()}, which Avro does not have; cast it"


# ------------------------------------------------ columns for a declared schema


def mismatches(kind: T.DataType, avro: AvroType, at: str = "") -> Iterator[str]:
    """Why values of a Spark type cannot be written as this Avro type."""
    if isinstance(kind, T.StructType) and avro.kind == "record":
        columns, fields = {f.name: f.dataType for f in kind.fields}, dict(avro.fields)
        for name in fields.keys() - columns.keys():
            yield f"the schema has the field {_join(at, name)}, and the output has no such column"
        for name in columns.keys() - fields.keys():
            yield f"the output has the column {_join(at, name)}, and the schema has no such field"
        for name in sorted(columns.keys() & fields.keys()):
            yield from mismatches(columns[name], fields[name], _join(at, name))
    elif isinstance(kind, T.ArrayType) and avro.kind == "array":
        yield from mismatches(kind.elementType, avro.content, f"{at}[]")
    elif isinstance(kind, T.MapType) and avro.kind == "map" and isinstance(kind.keyType, T.StringType):
        yield from mismatches(kind.valueType, avro.content, f"{at}{{}}")
    elif not _fits(kind, avro):
        name = avro.logical or avro.kind
        yield f"column {at} is {kind.simpleString().upper()}, which does not fit Avro's {name}; cast it"


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _fits(kind: T.DataType, avro: AvroType) -> bool:
    if isinstance(kind, T.NullType):
        return avro.nullable
    if avro.logical == "decimal":
        integer_digits = avro.precision - avro.scale
        return (
            isinstance(kind, T.DecimalType)
            and kind.scale <= avro.scale
            and kind.precision - kind.scale <= integer_digits
        )
    if avro.logical:
        return isinstance(kind, type(_LOGICAL[avro.kind, avro.logical][0]))
    if avro.kind in ("int", "long"):
        small = (T.ByteType, T.ShortType, T.IntegerType)
        return isinstance(kind, small if avro.kind == "int" else (*small, T.LongType))
    if avro.kind == "double":
        return isinstance(kind, T.FloatType | T.DoubleType)
    return avro.kind in _PRIMITIVE and isinstance(kind, type(_PRIMITIVE[avro.kind][0]))
