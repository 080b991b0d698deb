"""Avro as the audit reads it: a decoder in plain Python that shares neither code nor library with the job's.

It compiles the schemas of writer and reader to functions from bytes and a position to a value and the next position.
Dates and timestamps are numbers, of days and of microseconds, and decimals are Decimal.
https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from __future__ import annotations

import decimal
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream.audit_values import Undecodable, text, values

__all__ = ["TYPE", "column_type", "decoder", "text", "text_of_columns"]
TYPE = "AVRO"

Read = Callable[[bytes, int], tuple[Any, int]]
Names = dict[str, Any]

_PROMOTIONS = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"bytes", "string"},
}
_DIGITS = decimal.Context(prec=60)
_RANGES = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}
_COLUMNS = {
    **{"boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64()},
    **{"bytes": pa.binary(), "string": pa.string(), "fixed": pa.binary(), "enum": pa.string()},
}
_TIMES = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
# Logical types without another column type, by what they annotate.
_PLAIN = {
    "int": {"time-millis"},
    "long": {"time-micros", "timestamp-nanos", "local-timestamp-nanos"},
    "bytes": {"big-decimal"},
    "fixed": {"uuid", "duration"},
    "string": {"uuid"},
}


class _OtherMeaning(Undecodable):
    """Schemas whose values would be read with another meaning. No record of the writer is read then."""


class Schema:
    """A parsed schema with its named types."""

    def __init__(self, text: str) -> None:
        self.names: Names = {}
        self.top = self._normal(json.loads(text), "")

    def _normal(self, schema: Any, space: str) -> Any:
        """The schema with full names, and with each type as an object or a union."""
        if isinstance(schema, str):
            known = schema in _COLUMNS or schema in ("null", "record", "array", "map")
            return {"type": schema} if known else {"ref": _full(schema, space)}
        if isinstance(schema, list):
            return [self._normal(s, space) for s in schema]
        if isinstance(schema["type"], list | dict):
            return self._normal(schema["type"], space)
        kind = schema["type"]
        result = dict(schema)
        if kind in ("record", "enum", "fixed"):
            name = _full(schema["name"], schema.get("namespace", space))
            result["name"] = name
            self.names[name] = result
            if kind == "record":
                inner = name.rpartition(".")[0]
                result["fields"] = [{**f, "type": self._normal(f["type"], inner)} for f in schema["fields"]]
        elif kind == "array":
            result["items"] = self._normal(schema["items"], space)
        elif kind == "map":
            result["values"] = self._normal(schema["values"], space)
        elif kind not in _COLUMNS and kind != "null":
            return {"ref": _full(kind, space)}
        return result

    def at(self, node: Any) -> Any:
        """The type that a node is or refers to."""
        return self.names[node["ref"]] if isinstance(node, dict) and "ref" in node else node


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def arrow_type(schema: Schema, node: Any = None) -> pa.DataType:
    """The column type of a reader's schema, at its top or at a node."""
    node = schema.at(schema.top if node is None else node)
    if isinstance(node, list):
        (node,) = [n for n in node if schema.at(n).get("type") != "null"]
        return arrow_type(schema, node)
    kind = node["type"]
    if kind == "record":
        return pa.struct([(f["name"], arrow_type(schema, f["type"])) for f in node["fields"]])
    if kind == "array":
        return pa.list_(arrow_type(schema, node["items"]))
    if kind == "map":
        return pa.map_(pa.string(), arrow_type(schema, node["values"]))
    logical = _logical(node)
    if logical == "decimal":
        return pa.decimal128(node["precision"], node.get("scale", 0))
    return _TIMES[logical] if logical else _COLUMNS[kind]


def _logical(node: Mapping[str, Any]) -> str | None:
    """The logical type of a node, if it is one that has another column type."""
    name, kind = node.get("logicalType"), node["type"]
    if name == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        return "decimal" if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision else None
    return name if name in _TIMES and kind == ("int" if name == "date" else "long") else None


def column_type(schema: str) -> pa.DataType:
    """The columns of a reader's schema, as a struct."""
    return arrow_type(Schema(schema))


def decoder(writer: str, reader: str | None) -> Callable[[bytes, int], Any]:
    """A function that decodes a record from bytes at a position to their end. Both raise Undecodable.

    reader: None: the same as the writer's.
    """
    w = Schema(writer)
    r = w if reader is None else Schema(reader)
    read = _Compiler(w, r).value(w.top, r.top)

    def decode(data: bytes, start: int) -> Any:
        try:
            record, end = read(data, start)
        except (IndexError, struct.error, UnicodeDecodeError, ArithmeticError) as e:
            raise Undecodable(str(e)) from None
        if end != len(data):
            raise Undecodable("bytes are left over, or missing")
        return record

    return decode


class _Compiler:
    """Makes the functions that read values of the writer's schema as values of the reader's."""

    def __init__(self, writer: Schema, reader: Schema) -> None:
        self._w, self._r = writer, reader
        self._done: dict[tuple[str, str], Read] = {}

    def value(self, w: Any, r: Any) -> Read:
        w, r = self._w.at(w), self._r.at(r)
        if isinstance(w, list):
            return self._union(w, r)
        if isinstance(r, list):
            for branch in (*(b for b in r if self._r.at(b)["type"] == w["type"]), *r):
                try:
                    return self.value(w, branch)
                except _OtherMeaning:
                    raise
                except Undecodable:
                    continue
            raise Undecodable(f"{w['type']} is in no branch of the reader's union")
        kind, target = w["type"], r["type"]
        if target not in _PROMOTIONS.get(kind, {kind}):
            raise Undecodable(f"{kind} is not {target}")
        _require_same_meaning(w, r)
        if kind == "record":
            return self._record(w, r)
        if kind == "array":
            return _blocks(self.value(w["items"], r["items"]))
        if kind == "map":
            return _entries(self.value(w["values"], r["values"]))
        if kind == "enum":
            return _enum(w, r)
        if kind == "fixed" and w["size"] != r["size"]:
            raise Undecodable("a fixed of another size")
        return _converted(_scalar(w, target), r)

    def _union(self, w: list[Any], r: Any) -> Read:
        def refused(why: str) -> Read:
            def read(data: bytes, at: int) -> tuple[Any, int]:
                raise Undecodable(why)

            return read

        branches: list[Read] = []
        for branch in w:
            try:
                branches.append(self.value(branch, r))
            except _OtherMeaning:
                raise
            except Undecodable as e:
                branches.append(refused(str(e)))

        def read(data: bytes, at: int) -> tuple[Any, int]:
            number, at = _long(data, at)
            if not 0 <= number < len(branches):
                raise Undecodable("no such branch of a union")
            return branches[number](data, at)

        return read

    def _record(self, w: Mapping[str, Any], r: Mapping[str, Any]) -> Read:
        names = {w["name"].rpartition(".")[2], w["name"]}
        if r["name"].rpartition(".")[2] not in names and not names & set(r.get("aliases", ())):
            raise Undecodable(f"the record {w['name']} is not {r['name']}")
        known = {name: f for f in r["fields"] for name in (f["name"], *f.get("aliases", ()))}
        steps: list[tuple[str | None, Read]] = []
        for field in w["fields"]:
            target = known.get(field["name"])
            if target is None:
                steps.append((None, _Compiler(self._w, self._w).value(field["type"], field["type"])))
            else:
                steps.append((target["name"], self.value(field["type"], target["type"])))
        present = {name for name, _ in steps}
        absent = [f for f in r["fields"] if f["name"] not in present]
        if any("default" not in f for f in absent):
            raise Undecodable(f"the writer of {w['name']} has not all fields")
        defaults = {f["name"]: self._default(f["type"], f["default"]) for f in absent}

        def read(data: bytes, at: int) -> tuple[Any, int]:
            record = dict(defaults)
            for name, step in steps:
                value, at = step(data, at)
                if name is not None:
                    record[name] = value
            return record, at

        return read

    def _default(self, node: Any, value: Any) -> Any:
        """A default of the reader's schema, which JSON describes, as a value. Raises Undecodable if it is none."""
        node = self._r.at(node)
        if isinstance(node, list):
            kinds = {self._r.at(n)["type"]: self._r.at(n) for n in node}
            node = kinds["null"] if value is None and "null" in kinds else next(kinds[k] for k in kinds if k != "null")
        if not _is_default(node, value):
            raise Undecodable(f"the default {value!r:.80} is no {node['type']}")
        kind = node["type"]
        if value is None:
            return None
        if kind == "record":
            absent = [f for f in node["fields"] if f["name"] not in value]
            if any("default" not in f for f in absent):
                raise Undecodable(f"the default of {node['name']} has not all fields")
            content = {**{f["name"]: f["default"] for f in absent}, **value}
            return {f["name"]: self._default(f["type"], content[f["name"]]) for f in node["fields"]}
        if kind == "array":
            return [self._default(node["items"], v) for v in value]
        if kind == "map":
            return [(k, self._default(node["values"], v)) for k, v in value.items()]
        if kind in ("bytes", "fixed"):
            value = value.encode("latin-1")
        convert = _convert(node)
        return convert(value) if convert else value


def _is_default(node: Mapping[str, Any], value: Any) -> bool:
    """Whether a value in JSON is one of a type, apart from its parts."""
    kind = node["type"]
    if kind in _RANGES:
        return type(value) is int and value in _RANGES[kind]
    if kind in ("bytes", "fixed"):
        is_bytes = isinstance(value, str) and all(character <= "\u00ff" for character in value)
        return is_bytes and (kind == "bytes" or len(value) == node["size"])
    if kind == "enum":
        return value in node["symbols"]
    if kind in ("float", "double"):
        return type(value) in (int, float)
    types = {"null": type(None), "boolean": bool, "string": str, "array": list, "map": dict, "record": dict}
    return type(value) is types[kind]


# ------------------------------------------------ the parts of the binary form


def _long(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Undecodable("a number is too long")
    return (number >> 1) ^ -(number & 1), at


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    return _cut(data, at, size)


def _cut(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if size < 0 or end > len(data):
        raise Undecodable("bytes are missing")
    return data[at:end], end


def _scalar(w: Mapping[str, Any], target: str) -> Read:
    kind = w["type"]
    if kind == "null":
        return lambda data, at: (None, at)
    if kind == "boolean":
        return lambda data, at: (_boolean(data[at]), at + 1)
    if kind in ("int", "long"):
        if target in ("float", "double"):
            return lambda data, at: (float((n := _long(data, at))[0]), n[1])
        return _long
    if kind == "float":
        return lambda data, at: (struct.unpack_from("<f", data, at)[0], at + 4)
    if kind == "double":
        return lambda data, at: (struct.unpack_from("<d", data, at)[0], at + 8)
    if kind == "fixed":
        return lambda data, at: _cut(data, at, w["size"])
    if target == "bytes":
        return _bytes
    return lambda data, at: ((b := _bytes(data, at))[0].decode(), b[1])


def _boolean(byte: int) -> bool:
    return byte == 1


def _blocks(item: Read) -> Read:
    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return items, at
            if count < 0:  # the size of the block in bytes follows
                count = -count
                _, at = _long(data, at)
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return read


def _entries(value: Read) -> Read:
    def entry(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        key, at = _bytes(data, at)
        content, at = value(data, at)
        return (key.decode(), content), at

    pairs = _blocks(entry)

    def read(data: bytes, at: int) -> tuple[list[tuple[str, Any]], int]:
        entries, at = pairs(data, at)
        return list(dict(entries).items()), at

    return read


def _enum(w: Mapping[str, Any], r: Mapping[str, Any]) -> Read:
    symbols, known, default = w["symbols"], set(r["symbols"]), r.get("default")

    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(symbols):
            raise Undecodable("no such symbol")
        symbol = symbols[number]
        if symbol not in known:
            if default is None:
                raise Undecodable(f"{symbol} is no symbol of the reader")
            return default, at
        return symbol, at

    return read


# ------------------------------------------------ logical types


def _require_same_meaning(w: Mapping[str, Any], r: Mapping[str, Any]) -> None:
    """Raises _OtherMeaning if the reader's logical type makes another value of what the writer has written.

    A plain number or plain bytes may get a logical type, and may be without it.
    """
    ours = _logical(r)
    theirs = _logical(w) or ("text" if w["type"] == "string" else None)
    if w.get("logicalType") in _PLAIN.get(w["type"], ()):
        theirs = w["logicalType"]
    if ours is None or theirs is None:
        return
    if theirs != ours or (ours == "decimal" and w.get("scale", 0) != r.get("scale", 0)):
        raise _OtherMeaning(f"{theirs} of the writer is {ours} of the reader, or of another scale")


def _converted(read: Read, r: Mapping[str, Any]) -> Read:
    convert = _convert(r)
    if convert is None:
        return read

    def converted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return converted


def _convert(node: Mapping[str, Any]) -> Callable[[Any], Any] | None:
    """From a value as Avro stores it to that of the reader's logical type; None: the same."""
    logical = _logical(node)
    if logical == "decimal":
        scale = node.get("scale", 0)
        return lambda stored: decimal.Decimal(int.from_bytes(stored, "big", signed=True)).scaleb(-scale, _DIGITS)
    if logical in ("timestamp-millis", "local-timestamp-millis"):
        return lambda number: number * 1000
    return None


# ------------------------------------------------ content as text


def text_of_columns(record: Column, kind: StructType, schema: str | None) -> Column:
    """The content of records. schema: as declared; None: the job derives one that holds everything."""

    def convert(records: pa.Array) -> pa.Array:
        described = Schema(schema) if schema else None
        rows = values(records)
        if described is not None:
            rows = [_as_written(row, described, described.top) for row in rows]
        return pa.array([None if row is None else text(row) for row in rows], pa.binary())

    return F.arrow_udf(convert, "binary")(record)


def _as_written(value: Any, schema: Schema, node: Any) -> Any:
    """A value of the output as the declared schema holds it: timestamp-millis has no microseconds."""
    node = schema.at(node)
    if isinstance(node, list):
        node = schema.at(next(n for n in node if schema.at(n).get("type") != "null"))
    if value is None:
        return None
    if node["type"] == "record":
        kinds = {f["name"]: f["type"] for f in node["fields"]}
        return {name: _as_written(v, schema, kinds[name]) for name, v in value.items()}
    if node["type"] == "array":
        return [_as_written(v, schema, node["items"]) for v in value]
    if node["type"] == "map":
        return [(k, _as_written(v, schema, node["values"])) for k, v in value]
    if str(node.get("logicalType", "")).endswith("timestamp-millis"):
        return value // 1000 * 1000
    return value
