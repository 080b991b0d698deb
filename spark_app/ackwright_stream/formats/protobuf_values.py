"""Messages of Protobuf from and to Arrow columns.

In the framing the path of the message's indexes in its file follows the id, as a count and the indexes, each a zigzag
varint; a count of 0 is the first message.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pyarrow as pa
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ackwright_stream.formats import protobuf_text, protobuf_types
from ackwright_stream.formats.protobuf_types import ProtoType
from ackwright_stream.formats.registered import MAGIC, PREFIX, Find, Writers, decoded_each

Get = Callable[[Any], Any]  # from a value of a message to one for a column. Raises _Unfit
Put = Callable[[Any], Any]  # the reverse. Raises ValueError
_FIRST = b"\0"  # the indexes of the first message
_MICROS, _LONG = 1_000_000, 1 << 63
_MOST_INDEXES = 100


class _Unfit(ValueError):
    """A value that does not fit its column, in a clause."""


class Decoder:
    """Decodes records of any writer's schema into the columns of one reader's schema."""

    def __init__(self, schema: str, find: Find) -> None:
        message = protobuf_text.first_message(protobuf_text.file_of(schema))
        self.type = protobuf_types.read(message)
        self._name, self._class = message.full_name, GetMessageClass(message)
        self._record = _get_message(self.type, "")
        self._writers = Writers(find, protobuf_text.file_of)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[str | None]]:
        """The records, of type self.type.arrow, and for each what is wrong with it. A null value is a null record.

        Raises what the function that finds schemas raises.
        """
        records, problems = decoded_each(values, self._writers, self._one)
        return pa.array(records, self.type.arrow), problems

    def _one(self, value: bytes, schema_id: int, of_writer: FileDescriptorProto) -> tuple[Any, str | None]:
        try:
            indexes, start = _indexes(value, PREFIX.size)
            name = protobuf_text.message_name(of_writer, indexes)
            if name != self._name:
                is_what = f"the message {name}" if name else f"no message of schema {schema_id}"
                return None, f"it is {is_what}, and the reader's schema has {self._name}"
            message = self._class.FromString(value[start:])
            if not message.IsInitialized():
                return None, f"it lacks {', '.join(message.FindInitializationErrors())}, which its schema requires"
            return self._record(message), None
        except (IndexError, DecodeError) as e:
            return None, f"it does not fit schema {schema_id}: {_text(e)}"
        except ValueError as e:
            return None, _text(e)


class Encoder:
    """Encodes columns as messages of one schema."""

    def __init__(self, schema: str, schema_id: int) -> None:
        message = protobuf_text.first_message(protobuf_text.file_of(schema))
        self._class = GetMessageClass(message)
        self._put = _put_message(protobuf_types.read(message), "")
        self._prefix = PREFIX.pack(MAGIC, schema_id) + _FIRST

    def encode(self, records: pa.Array) -> pa.Array:
        """The records' values; a null record is a null value. Raises ValueError for one that the schema refuses."""
        return pa.array([None if row is None else self._one(row) for row in _rows(records)], pa.binary())

    def _one(self, row: dict[str, Any]) -> bytes:
        return self._prefix + bytes(self._class(**self._put(row)).SerializeToString())


def _indexes(value: bytes, at: int) -> tuple[Sequence[int], int]:
    """The indexes at a position, and the position behind them. Raises IndexError, _Unfit."""
    count, at = _zigzag(value, at)
    if not 0 <= count <= _MOST_INDEXES:
        raise _Unfit(f"it has {count} indexes of a message")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return indexes or [0], at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise _Unfit("the indexes of its message are no numbers")


def _text(error: object) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


# ------------------------------------------------ from messages to columns


def _get_message(kind: ProtoType, path: str) -> Get:
    fields = [(name, _get_field(t, name, _join(path, name))) for name, t in kind.fields]
    return lambda message: {name: get(message) for name, get in fields}


def _get_field(kind: ProtoType, name: str, path: str) -> Get:
    """From a message to the value of one of its fields."""
    if kind.kind == "array":
        item = _get_single(kind.content, path)
        return lambda message: [item(v) for v in getattr(message, name)]
    if kind.kind == "map":
        key, value = _get_single(kind.keys, path), _get_single(kind.content, path)
        # In the order of the keys: a message has none, and a transform may show it.
        return lambda message: [(key(k), value(v)) for k, v in sorted(getattr(message, name).items())]
    single = _get_single(kind, path)
    if kind.nullable:
        return lambda message: single(getattr(message, name)) if message.HasField(name) else None
    return lambda message: single(getattr(message, name))


def _get_single(kind: ProtoType, path: str) -> Get:
    if kind.wrapped:
        return lambda value: _scalar(kind, value.value)
    match kind.kind:
        case "message":
            return _get_message(kind, path)
        case "timestamp":
            return lambda value: _micros(value, path)
        case "enum":
            names = dict(reversed(kind.symbols))  # of aliases the first one
            return lambda value: names.get(value) or str(value)
        case _:
            return lambda value: _scalar(kind, value)


def _scalar(kind: ProtoType, value: Any) -> Any:
    return decimal.Decimal(value) if kind.kind == "uint64" else value


def _micros(value: Any, path: str) -> int:
    micros = int(value.seconds * _MICROS + value.nanos // 1000)
    if 0 <= value.nanos < 1_000_000_000 and -_LONG <= micros < _LONG:
        return micros
    raise _Unfit(f"{path} is no time that a TIMESTAMP can hold")


# ------------------------------------------------ from columns to messages


def _put_message(kind: ProtoType, path: str) -> Put:
    fields = {name: _put_field(t, _join(path, name)) for name, t in kind.fields}

    def put(row: dict[str, Any]) -> dict[str, Any]:
        for oneof, members in kind.oneofs:
            if len(present := [name for name in members if row.get(name) is not None]) > 1:
                names = ", ".join(_join(path, name) for name in present)
                raise ValueError(f"{names} are not null, and the oneof {_join(path, oneof)} holds only one of them")
        values = ((name, fields[name](value)) for name, value in row.items())
        return {name: value for name, value in values if value is not None}

    return put


def _put_field(kind: ProtoType, path: str) -> Put:
    if kind.kind == "array":
        item = _not_null(_put_single(kind.content, path), f"{path}[]")
        return lambda values: None if values is None else [item(v) for v in values]
    if kind.kind == "map":
        key = _not_null(_put_single(kind.keys, path), f"{path}{{}}")
        value = _not_null(_put_single(kind.content, path), f"{path}{{}}")
        return lambda pairs: None if pairs is None else {key(k): value(v) for k, v in pairs}
    single = _put_single(kind, path)
    if kind.nullable:
        return lambda value: None if value is None else single(value)
    return _not_null(single, path)


def _not_null(put: Put, path: str) -> Put:
    def checked(value: Any) -> Any:
        if value is None:
            raise ValueError(f"{path} is null, and the schema does not allow it")
        return put(value)

    return checked


def _put_single(kind: ProtoType, path: str) -> Put:
    put = _put_value(kind, path)
    return (lambda value: {"value": put(value)}) if kind.wrapped else put


def _put_value(kind: ProtoType, path: str) -> Put:
    match kind.kind:
        case "message":
            return _put_message(kind, path)
        case "timestamp":
            return lambda value: {"seconds": value // _MICROS, "nanos": value % _MICROS * 1000}
        case "enum":
            numbers = {name: number for number, name in kind.symbols}
            return lambda value: _number(value, numbers, path)
        case "uint32" | "uint64":
            return lambda value: _unsigned(value, 32 if kind.kind == "uint32" else 64, path)
        case _:
            return lambda value: value


def _number(value: str, numbers: dict[str, int], path: str) -> int:
    if value in numbers:
        return numbers[value]
    raise ValueError(f"{path} is {value!r:.80}, which is no value of the enum")


def _unsigned(value: Any, bits: int, path: str) -> int:
    if 0 <= value < 1 << bits:
        return int(value)
    raise ValueError(f"{path} is {value}, which is no unsigned number of {bits} bits")


def _rows(array: pa.Array) -> list[Any]:
    """The values of a column: times in microseconds, maps as lists of pairs."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*map(_rows, array.flatten()), strict=True)]
    elif pa.types.is_map(kind):
        keys, items, ends = _rows(array.keys), _rows(array.items), array.offsets.to_pylist()
        rows = [list(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(ends)]
    elif pa.types.is_list(kind):
        items, ends = _rows(array.values), array.offsets.to_pylist()
        rows = [items[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    else:
        return array.to_pylist()  # type: ignore[no-any-return]
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _join(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name
