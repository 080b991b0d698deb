"""Protobuf as the audit reads it: a decoder in plain Python that shares neither code nor library with the job's.

Messages are read by the field numbers of one schema; a timestamp is a number of microseconds.
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import base64
import decimal
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream import audit_values
from ackwright_stream.audit_proto_file import DESCRIPTOR, SCALARS, Field, File, Message, of_descriptor, parse
from ackwright_stream.audit_values import Undecodable

TYPE = "PROTOBUF"
_COLUMNS = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), pa.int32()),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
    **{"double": pa.float64(), "float": pa.float32(), "bool": pa.bool_(), "string": pa.string(), "bytes": pa.binary()},
}
_FIXED = {"double": "<d", "fixed64": "<Q", "sfixed64": "<q", "float": "<f", "fixed32": "<I", "sfixed32": "<i"}
_TIMESTAMP, _WRAPPER = "google.protobuf.Timestamp", re.compile(r"google\.protobuf\.\w+Value")
_VARINT, _EIGHT, _BYTES, _GROUP, _GROUP_END, _FOUR = range(6)
_SHORT_BYTES = 5
_DEEPEST = 100
_INT64 = range(-(2**63), 2**63)


def column_type(schema: str) -> pa.DataType:
    """The columns of a reader's schema, which the driver has accepted, as a struct."""
    file = _file(schema)
    return _struct(file, file.messages[0])


def decoder(writer: str, reader: str | None) -> Callable[[bytes, int], Any]:
    """A function that decodes a record from bytes at a position to their end. Both raise Undecodable.

    reader: the schema whose columns the record is for; None: its content, by its writer's schema.
    """
    of_writer = _file(writer)
    of_reader = of_writer if reader is None else _file(reader)
    top = of_reader.messages[0]

    def decode(data: bytes, start: int) -> Any:
        try:
            name, start = _message_name(of_writer, data, start)
            if name != top.full_name:
                raise Undecodable(f"the message {name}")
            record = _decoded(of_reader, top, data[start:], 0)
        except (IndexError, struct.error, UnicodeDecodeError) as e:
            raise Undecodable(str(e)) from None
        return _content(of_reader, top, record) if reader is None else record

    return decode


@lru_cache(maxsize=512)
def _file(schema: str) -> File:
    if re.fullmatch(r"[A-Za-z0-9+/\s]+=*\s*", schema):
        described = parse(DESCRIPTOR)
        try:
            data = base64.b64decode(schema)
        except ValueError as e:
            raise Undecodable(str(e)) from None
        file = of_descriptor(_decoded(described, described.messages[0], data, 0))
    else:
        file = parse(schema)
    if not file.messages:
        raise Undecodable("no message")
    return file


def _message_name(file: File, data: bytes, at: int) -> tuple[str, int]:
    """The name of the message that the indexes at a position lead to, and the position behind them."""
    number, at = _varint(data, at)
    count, indexes = _signed(number), list[int]()
    if not 0 <= count <= _DEEPEST:
        raise Undecodable(f"{count} indexes of a message")
    for _ in range(count):
        index, at = _varint(data, at)
        indexes.append(_signed(index))
    messages, name = file.messages, ""
    for index in indexes or [0]:
        if not 0 <= index < len(messages):
            raise Undecodable("no such message")
        name, messages = messages[index].full_name, messages[index].inner
    return name, at


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


# ------------------------------------------------ columns of the reader


def _struct(file: File, message: Message) -> pa.DataType:
    return pa.struct([(f.name, _arrow(file, f)) for f in message.fields])


def _arrow(file: File, field: Field) -> pa.DataType:
    single = _single_arrow(file, field)
    if field.label == "map":
        return pa.map_(_COLUMNS[field.key], single)
    return pa.list_(single) if field.label == "repeated" else single


def _single_arrow(file: File, field: Field) -> pa.DataType:
    if field.type in SCALARS:
        return _COLUMNS[field.type]
    target = file.resolve(field.type, field.scope)
    if not isinstance(target, Message):
        return pa.string()
    if target.full_name == _TIMESTAMP:
        return pa.timestamp("us", "UTC")
    if _WRAPPER.fullmatch(target.full_name):
        return _COLUMNS[target.fields[0].type]
    return _struct(file, target)


# ------------------------------------------------ bytes of messages


def _decoded(file: File, message: Message, data: bytes, depth: int) -> dict[str, Any]:
    """The fields of a message: null if they are absent and the message shows it."""
    if depth > _DEEPEST:
        raise Undecodable("messages are nested too deeply")
    fields = {f.number: f for f in message.fields}
    raw: dict[str, Any] = {}  # of repeated fields lists; of messages their bytes, which add up
    at = 0
    while at < len(data):
        tag, at = _short(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Undecodable("a field with the number 0")
        value, at = _value(data, at, number, wire, depth)
        if (field := fields.get(number)) is not None:
            _store(_Place(file, message, field), wire, value, raw)
    return {f.name: _finished(file, f, raw, depth) for f in message.fields}


def _value(data: bytes, at: int, number: int, wire: int, depth: int) -> tuple[Any, int]:
    """The value of a field as its wire type tells its length, and the position behind it."""
    if wire == _VARINT:
        return _varint(data, at)
    if wire == _BYTES:
        size, at = _short(data, at)
        return _cut(data, at, size)
    if wire in (_EIGHT, _FOUR):
        return _cut(data, at, 8 if wire == _EIGHT else 4)
    if wire != _GROUP or depth > _DEEPEST:
        raise Undecodable("an unknown wire type")
    while True:  # a group is skipped
        tag, at = _short(data, at)
        if tag & 7 == _GROUP_END:
            if tag >> 3 != number:
                raise Undecodable("the end of another group")
            return b"", at
        if tag >> 3 == 0:
            raise Undecodable("a field with the number 0")
        _, at = _value(data, at, tag >> 3, tag & 7, depth + 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, at  # the tenth byte has bits beyond 64, which decoders drop
    raise Undecodable("a number is too long")


def _short(data: bytes, at: int) -> tuple[int, int]:
    """A tag or a size, which have 32 bits (Protocol Buffers' documentation, Encoding), in five bytes at most."""
    number, end = _varint(data, at)
    if end - at > _SHORT_BYTES or number >> 32:
        raise Undecodable("a tag or a size is too long")
    return number, end


def _cut(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise Undecodable("bytes are missing")
    return data[at:end], end


def _wire_of(file: File, field: Field) -> int:
    if field.type in _FIXED:
        return _EIGHT if _FIXED[field.type] in ("<d", "<Q", "<q") else _FOUR
    if field.type in ("string", "bytes") or field.label == "map":
        return _BYTES
    is_message = field.type not in SCALARS and isinstance(file.resolve(field.type, field.scope), Message)
    return _BYTES if is_message else _VARINT


@dataclass(frozen=True)
class _Place:
    """Where a value belongs."""

    file: File
    message: Message
    field: Field


def _store(place: _Place, wire: int, value: Any, raw: dict[str, Any]) -> None:
    file, message, field = place.file, place.message, place.field
    expected = _wire_of(file, field)
    if field.label in ("repeated", "map"):
        if wire == expected:
            values = [value]
        elif wire == _BYTES:
            values = _unpacked(value, expected)
        else:
            return  # as an unknown field
        raw.setdefault(field.name, []).extend(v for v in values if _is_known(file, field, v))
    elif wire == expected and _is_known(file, field, value):
        for other in message.fields:
            if field.oneof and other.oneof == field.oneof and other.name != field.name:
                raw.pop(other.name, None)
        is_message = expected == _BYTES and field.type not in SCALARS
        raw[field.name] = raw.get(field.name, b"") + value if is_message else value


def _unpacked(data: bytes, wire: int) -> list[Any]:
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at) if wire == _VARINT else _cut(data, at, 8 if wire == _EIGHT else 4)
        values.append(value)
    return values


def _is_known(file: File, field: Field, value: Any) -> bool:
    """Whether a value is one of its enum: in proto2 another one is as an unknown field."""
    if field.type in SCALARS or field.label == "map" or file.syntax != "proto2":
        return True
    target = file.resolve(field.type, field.scope)
    return isinstance(target, Message) or _int(value, 32) in (number for _, number in target)


def _finished(file: File, field: Field, raw: Mapping[str, Any], depth: int) -> Any:
    if field.label == "map":
        return _entries(file, field, raw.get(field.name, ()), depth)
    if field.label == "repeated":
        return [_single(file, field, v, depth) for v in raw.get(field.name, ())]
    if field.name in raw:
        return _single(file, field, raw[field.name], depth)
    if field.label == "required":
        raise Undecodable(f"a required field is missing: {field.name}")
    return None if file.has_presence(field) else _default(file, field)


def _entries(file: File, field: Field, entries: Any, depth: int) -> list[tuple[Any, Any]]:
    """The entries of a map in the order of their keys."""
    key, value = Field("key", 1, field.key, field.scope), Field("value", 2, field.type, field.scope)
    entry, pairs = Message("", [key, value]), {}
    for data in entries:
        decoded = _decoded(file, entry, data, depth + 1)
        if not _is_known_entry(file, entry, data, depth + 1):
            continue
        empty = decoded["value"] is None
        pairs[decoded["key"] if decoded["key"] is not None else _default(file, key)] = (
            _default(file, value) if empty else decoded["value"]
        )
    return sorted(pairs.items())


def _is_known_entry(file: File, entry: Message, data: bytes, depth: int) -> bool:
    """Whether an entry has nothing but its key and its value: the job's decoder takes another one for unknown."""
    wires = {field.number: _wire_of(file, field) for field in entry.fields}
    at = 0
    while at < len(data):
        tag, at = _short(data, at)
        if wires.get(tag >> 3) != tag & 7:
            return False
        _, at = _value(data, at, tag >> 3, tag & 7, depth)
    return True


def _default(file: File, field: Field) -> Any:
    """The value of a field that is absent."""
    if field.type == "string":
        return ""
    if field.type == "bytes":
        return b""
    if field.type in ("float", "double"):
        return 0.0
    if field.type in SCALARS:
        return _scalar(field.type, 0) if _is_varint(field.type) else _typed(field.type, 0)
    target = file.resolve(field.type, field.scope)
    return _single(file, field, b"", 0) if isinstance(target, Message) else target[0][0]


def _is_varint(kind: str) -> bool:
    return kind not in _FIXED


def _single(file: File, field: Field, value: Any, depth: int) -> Any:
    """One value of a field of its bytes or its number."""
    if field.type in SCALARS:
        return _scalar(field.type, value)
    target = file.resolve(field.type, field.scope)
    if not isinstance(target, Message):
        number = _int(value, 32)
        return next((name for name, n in target if n == number), str(number))
    fields = _decoded(file, target, value, depth + 1)
    if target.full_name == _TIMESTAMP:
        micros = fields["seconds"] * 1_000_000 + fields["nanos"] // 1000
        if not 0 <= fields["nanos"] < 1_000_000_000 or micros not in _INT64:
            raise Undecodable("no time that a column can hold")
        return micros
    return fields["value"] if _WRAPPER.fullmatch(target.full_name) else fields


def _scalar(kind: str, value: Any) -> Any:
    if kind == "string":
        return value.decode()
    if kind == "bytes":
        return value
    if kind in _FIXED:
        return _typed(kind, struct.unpack(_FIXED[kind], value)[0])
    if kind == "bool":
        return value != 0
    if kind.startswith("sint"):
        return _int(_signed(value & 0xFFFFFFFF if kind == "sint32" else value), 32 if kind == "sint32" else 64)
    if kind.startswith("uint"):
        return _typed(kind, value & 0xFFFFFFFF if kind == "uint32" else value)
    return _int(value, 32 if kind == "int32" else 64)


def _typed(kind: str, number: Any) -> Any:
    return decimal.Decimal(number) if kind in ("uint64", "fixed64") else number


def _int(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


# ------------------------------------------------ content as text


def text(record: Any) -> bytes:
    """The content of a record that was decoded for no reader."""
    return audit_values.text(record)


def text_of_columns(record: Column, kind: StructType, schema: str | None) -> Column:
    """The content of records. schema: as declared; None: the job derives one that shows every absent field."""

    def convert(records: pa.Array) -> pa.Array:
        file = _file(schema) if schema is not None else None
        rows = (row if row is None else _of_columns(file, row) for row in audit_values.values(records))
        return pa.array([None if row is None else text(row) for row in rows], pa.binary())

    return F.arrow_udf(convert, "binary")(record)


def _of_columns(file: File | None, row: dict[str, Any]) -> dict[str, Any]:
    return _without_absent(row) if file is None else _content(file, file.messages[0], row)


def _content(file: File, message: Message, record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record that are not absent, nor the same as absent."""
    content = {}
    fields = {f.name: f for f in message.fields}
    for name, value in record.items():
        field = fields[name]
        if value is None or value == []:
            continue
        target = None if field.type in SCALARS else file.resolve(field.type, field.scope)
        written = _converted(file, target, value)
        if field.label in ("", "optional") and not file.has_presence(field) and _is_zero(file, field, written):
            continue
        content[name] = written
    return content


def _converted(file: File, target: Any, value: Any) -> Any:
    if isinstance(value, list):
        pairs = bool(value) and isinstance(value[0], tuple)
        if pairs:
            return sorted((_number(k), _converted(file, target, v)) for k, v in value)
        return [_converted(file, target, v) for v in value]
    if isinstance(target, Message) and isinstance(value, dict):
        return _content(file, target, value)
    if isinstance(target, list):  # an enum, whose first name of a number counts
        numbers = dict(target)
        return next((name for name, n in target if n == numbers.get(value)), value)
    return _number(value)


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_absent(v) for name, v in value.items() if v is not None and v != []}
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return sorted((k, _without_absent(v)) for k, v in value)
        return [_without_absent(v) for v in value]
    return value


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, decimal.Decimal) else value


def _is_zero(file: File, field: Field, value: Any) -> bool:
    """Whether a value is what an absent field means."""
    if isinstance(value, float):
        return value == 0 and math.copysign(1, value) > 0
    return bool(value == _number(_default(file, field)))
