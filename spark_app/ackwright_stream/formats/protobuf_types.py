"""Messages of Protobuf as a tree, and their Spark and Arrow types; schemas that are derived from columns. Pure.

Only what both Protobuf and Spark can hold is supported; anything else is refused by name when the driver starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from pyspark.sql import types as T

from ackwright_stream.formats import protobuf_text
from ackwright_stream.formats.registered import Unsupported

_UNSIGNED_LONG = 20  # digits
_INT, _LONG = (T.IntegerType(), pa.int32()), (T.LongType(), pa.int64())
_KINDS = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), "int32"),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), "int64"),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), "uint32"),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), "uint64"),
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_ENUM: "enum",
}
_SCALARS: Mapping[str, tuple[T.DataType, pa.DataType]] = {
    "double": (T.DoubleType(), pa.float64()),
    "float": (T.FloatType(), pa.float32()),
    "int32": _INT,
    "int64": _LONG,
    "uint32": _LONG,
    "uint64": (T.DecimalType(_UNSIGNED_LONG, 0), pa.decimal128(_UNSIGNED_LONG, 0)),
    "bool": (T.BooleanType(), pa.bool_()),
    "string": (T.StringType(), pa.string()),
    "bytes": (T.BinaryType(), pa.binary()),
    "enum": (T.StringType(), pa.string()),
    "timestamp": (T.TimestampType(), pa.timestamp("us", "UTC")),
}
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int32", "Int64", "UInt32", "UInt64", "Bool", "String", "Bytes")
}


@dataclass(frozen=True)
class ProtoType:
    """A type of a field."""

    kind: str  # a key of _SCALARS, or message, array, map
    nullable: bool = False  # whether a message shows that the field is absent
    required: bool = False
    wrapped: bool = False  # whether it is the field `value` of a wrapper
    fields: tuple[tuple[str, ProtoType], ...] = ()  # of a message
    oneofs: tuple[tuple[str, tuple[str, ...]], ...] = ()  # of a message: those of several fields, with their names
    symbols: tuple[tuple[int, str], ...] = ()  # of an enum: numbers with their names
    key: ProtoType | None = None  # of a map
    item: ProtoType | None = None  # of an array; the values of a map

    @property
    def spark(self) -> T.DataType:
        """The Spark type of its values, every part nullable: a malformed record has nulls only."""
        if self.kind == "message":
            return T.StructType([T.StructField(name, t.spark) for name, t in self.fields])
        if self.kind == "array":
            return T.ArrayType(self.content.spark)
        if self.kind == "map":
            return T.MapType(self.keys.spark, self.content.spark)
        return _SCALARS[self.kind][0]

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values, as Spark exchanges them."""
        if self.kind == "message":
            return pa.struct([pa.field(name, t.arrow) for name, t in self.fields])
        if self.kind == "array":
            return pa.list_(pa.field("element", self.content.arrow))
        if self.kind == "map":
            return pa.map_(self.keys.arrow, self.content.arrow)
        return _SCALARS[self.kind][1]

    @property
    def content(self) -> ProtoType:
        """The type of an array's items or a map's values."""
        if self.item is None:
            raise TypeError(f"{self.kind} has no items")
        return self.item

    @property
    def keys(self) -> ProtoType:
        """The type of a map's keys."""
        if self.key is None:
            raise TypeError(f"{self.kind} has no keys")
        return self.key


def read(message: Descriptor) -> ProtoType:
    """The tree of a message. Raises Unsupported."""
    return _message(message, "", ())


def _message(message: Descriptor, path: str, open_names: tuple[str, ...]) -> ProtoType:
    if message.full_name in open_names:
        raise Unsupported(f"{_at(path)} is {message.full_name} again: recursive messages have no columns")
    if not message.fields:
        raise Unsupported(f"{_at(path)} is the message {message.full_name}, which has no fields")
    names = [f.name for f in message.fields]
    if twice := sorted(n for n in names if [m.lower() for m in names].count(n.lower()) > 1):
        raise Unsupported(f"{_at(path)} has fields that differ only in case: {', '.join(twice)}")
    inside = (*open_names, message.full_name)
    fields = tuple((f.name, _field(f, f"{path}.{f.name}".lstrip("."), inside)) for f in message.fields)
    oneofs = tuple((o.name, tuple(f.name for f in o.fields)) for o in message.oneofs if len(o.fields) > 1)
    return ProtoType("message", fields=fields, oneofs=oneofs)


def _field(field: FieldDescriptor, path: str, open_names: tuple[str, ...]) -> ProtoType:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (_single(message.fields_by_name[name], path, open_names) for name in ("key", "value"))
        return ProtoType("map", key=replace(key, nullable=False), item=replace(value, nullable=False))
    single = _single(field, path, open_names)
    if field.is_repeated:
        return ProtoType("array", item=single)
    required = bool(field.is_required)
    return replace(single, nullable=bool(field.has_presence) and not required, required=required)


def _single(field: FieldDescriptor, path: str, open_names: tuple[str, ...]) -> ProtoType:
    if field.type == FieldDescriptor.TYPE_GROUP:
        raise Unsupported(f"{_at(path)} is a group; make it a message")
    message = field.message_type
    if message is None:
        enum = field.enum_type
        symbols = tuple((v.number, v.name) for v in enum.values) if enum else ()
        return ProtoType(_KINDS[field.type], symbols=symbols)
    if message.full_name == _TIMESTAMP:
        return ProtoType("timestamp")
    if message.full_name in _WRAPPERS:
        return replace(_single(message.fields_by_name["value"], path, open_names), wrapped=True)
    return _message(message, path, open_names)


def _at(path: str) -> str:
    return f"field {path}" if path else "the first message"


# ------------------------------------------------ from columns to a schema

_OF_SPARK: Sequence[tuple[type[T.DataType], str]] = (
    (T.BooleanType, "bool"),
    (T.ByteType, "int32"),
    (T.ShortType, "int32"),
    (T.IntegerType, "int32"),
    (T.LongType, "int64"),
    (T.FloatType, "float"),
    (T.DoubleType, "double"),
    (T.StringType, "string"),
    (T.BinaryType, "bytes"),
    (T.TimestampType, _TIMESTAMP),
)
_KEYS = (T.StringType, T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.BooleanType)
_NEVER = range(19_000, 20_000)  # numbers that Protobuf keeps for itself


def of_columns(fields: Sequence[T.StructField], name: str, previous: str | None) -> str:
    """The text of a file whose only message has these columns. The columns must have no column_problems().

    previous: the schema before it. A column keeps its field's number, and the numbers of removed ones are reserved: a
    number that meant another column would be misread by every reader that has the other schema.
    """
    before = None
    if previous is not None:
        try:
            file = protobuf_text.file_of(previous)
            before = file.message_type[0] if file.message_type else None
        except Unsupported:
            before = None  # the registry compares the two
    lines = list(_lines(fields, name, before, ""))
    uses_time = any(_TIMESTAMP in line for line in lines)
    imports = ['import "google/protobuf/timestamp.proto";'] if uses_time else []
    return "\n".join(['syntax = "proto3";', *imports, *lines, ""])


def _lines(fields: Sequence[T.StructField], name: str, before: DescriptorProto | None, indent: str) -> Iterator[str]:
    used = list(protobuf_text.used_numbers(before)) if before is not None else []
    numbers = {field: first for field, first, _ in used if field is not None}
    columns = {f.name for f in fields}
    reserved = sorted((first, last) for field, first, last in used if field not in columns)
    following = max((last for _, _, last in used), default=0) + 1
    yield f"{indent}message {name} {{"
    inner = f"{indent}  "
    for first, last in reserved:
        yield f"{inner}reserved {first if first == last else f'{first} to {last}'};"
    nested = {m.name: m for m in before.nested_type} if before is not None else {}
    for f in fields:
        if struct := _struct_of(f.dataType):
            yield from _lines(struct.fields, f"Record_{f.name}", nested.get(f"Record_{f.name}"), inner)
        if f.name not in numbers:
            following = _NEVER.stop if following in _NEVER else following
            numbers[f.name], following = following, following + 1
        yield f"{inner}{_declared_type(f)} {f.name} = {numbers[f.name]};"
    yield f"{indent}}}"


def _struct_of(kind: T.DataType) -> T.StructType | None:
    """The struct of a column, of its items or of its values."""
    if isinstance(kind, T.ArrayType):
        kind = kind.elementType
    elif isinstance(kind, T.MapType):
        kind = kind.valueType
    return kind if isinstance(kind, T.StructType) else None


def _declared_type(f: T.StructField) -> str:
    kind = f.dataType
    if isinstance(kind, T.ArrayType):
        return f"repeated {_name(kind.elementType, f.name)}"
    if isinstance(kind, T.MapType):
        return f"map<{_name(kind.keyType, f.name)}, {_name(kind.valueType, f.name)}>"
    return f"optional {_name(kind, f.name)}"


def _name(kind: T.DataType, column: str) -> str:
    if isinstance(kind, T.StructType):
        return f"Record_{column}"
    return next(name for spark, name in _OF_SPARK if isinstance(kind, spark))


def column_problems(fields: Sequence[T.StructField], path: str = "") -> Iterator[str]:
    """Why a schema cannot be derived from these columns."""
    for f in fields:
        at = _join(path, f.name)
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", f.name):
            yield f"column {at!r} is no name in Protobuf: letters, digits and '_' only; rename it with AS"
        kind = f.dataType
        if isinstance(kind, T.ArrayType):
            kind, at = kind.elementType, f"{at}[]"
        elif isinstance(kind, T.MapType):
            if not isinstance(kind.keyType, _KEYS):
                keys = kind.keyType.simpleString().upper()
                yield f"column {at!r} is a map whose keys are {keys}, which Protobuf does not have"
            kind, at = kind.valueType, f"{at}{{}}"
        if isinstance(kind, T.StructType):
            if not kind.fields:
                yield f"column {at!r} is a struct without fields"
            yield from column_problems(kind.fields, at)
        elif isinstance(kind, T.ArrayType | T.MapType):
            name = kind.simpleString().upper()
            yield f"column {at!r} is {name} inside another one, which Protobuf does not have; make it a struct"
        elif not isinstance(kind, tuple(spark for spark, _ in _OF_SPARK)):
            yield f"column {at!r} is {kind.simpleString().upper()}, which Protobuf does not have; cast it"


# ------------------------------------------------ columns for a declared schema

_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_FITTING: Mapping[str, tuple[type[T.DataType], ...]] = {
    "double": (T.FloatType, T.DoubleType),
    "float": (T.FloatType,),
    "int32": _INTEGERS[:3],
    "int64": _INTEGERS,
    "uint32": _INTEGERS,
    "uint64": (*_INTEGERS, T.DecimalType),
    "bool": (T.BooleanType,),
    "string": (T.StringType,),
    "bytes": (T.BinaryType,),
    "enum": (T.StringType,),
    "timestamp": (T.TimestampType,),
}


def mismatches(kind: T.DataType, proto: ProtoType, at: str = "") -> Iterator[str]:
    """Why values of a Spark type cannot be written as this type."""
    if isinstance(kind, T.StructType) and proto.kind == "message":
        columns, fields = {f.name: f.dataType for f in kind.fields}, dict(proto.fields)
        for name in (name for name, t in proto.fields if t.required and name not in columns):
            yield f"the schema requires the field {_join(at, name)}, and the output has no such column"
        for name in sorted(columns.keys() - fields.keys()):
            yield f"the output has the column {_join(at, name)}, and the schema has no such field"
        for name in sorted(columns.keys() & fields.keys()):
            yield from mismatches(columns[name], fields[name], _join(at, name))
    elif isinstance(kind, T.NullType):
        if not proto.nullable:
            yield f"column {at} is null, and the schema does not allow it"
    elif isinstance(kind, T.ArrayType) and proto.kind == "array":
        yield from mismatches(kind.elementType, proto.content, f"{at}[]")
    elif isinstance(kind, T.MapType) and proto.kind == "map":
        yield from mismatches(kind.keyType, proto.keys, f"{at}{{key}}")
        yield from mismatches(kind.valueType, proto.content, f"{at}{{}}")
    elif not isinstance(kind, _FITTING.get(proto.kind, ())) or (isinstance(kind, T.DecimalType) and kind.scale):
        yield f"column {at} is {kind.simpleString().upper()}, which does not fit Protobuf's {proto.kind}; cast it"


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
