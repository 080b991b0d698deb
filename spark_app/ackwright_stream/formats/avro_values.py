"""Avro records from and to Arrow columns, in the framing of Confluent's registry: 0, the schema's id in 4 bytes, datum.

fastavro reads and writes the values as Avro stores them; logical types are conversions of whole Arrow columns. So the
reader's logical types count, as in Avro's own readers, and no value passes through Python's datetime.
"""

from __future__ import annotations

import decimal
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.compute as pc

from ackwright_stream.formats import avro_schema
from ackwright_stream.formats.avro_schema import AvroType
from ackwright_stream.formats.registered import MAGIC, PREFIX, Find, Unsupported, decoded_each, id_of

_EXACT = decimal.Context(prec=avro_schema.LONGEST_DECIMAL + 1, traps=[decimal.Inexact, decimal.InvalidOperation])


@dataclass(frozen=True)
class _Writer:
    """What is known of a writer's schema."""

    schema: Any = None
    reader: Any = None  # fastavro's reader schema; None: the same as the writer's
    problem: str | None = None  # why its records cannot be read


class Decoder:
    """Decodes records of any writer's schema into the columns of one reader's schema."""

    def __init__(self, schema: str, find: Find) -> None:
        self.type = avro_schema.read(schema)
        self._find = find
        self._physical = avro_schema.physical(avro_schema.load(schema))
        self._reader = _with_stored_defaults(fastavro.parse_schema(self._physical))
        self._writers: dict[int, _Writer] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[str | None]]:
        """The records, of type self.type.arrow, and for each what is wrong with it. A null value is a null record.

        Raises what the function that finds schemas raises.
        """
        self._writers = {k: w for k, w in self._writers.items() if w.problem is None}  # it may have been registered
        raw, problems = decoded_each(values, self._one)
        try:
            return self._columns(raw), problems
        except (pa.ArrowException, ArithmeticError, ValueError, OverflowError):
            return self._columns_of_each(raw, problems)

    def _one(self, value: bytes) -> tuple[Any, str | None]:
        schema_id = id_of(value)
        if isinstance(schema_id, str):
            return None, schema_id
        writer = self._writers.get(schema_id) or self._writer(schema_id)
        if writer.problem:
            return None, writer.problem
        datum = io.BytesIO(value)
        datum.seek(PREFIX.size)
        try:
            record = fastavro.schemaless_reader(datum, writer.schema, writer.reader)
        except Exception as e:  # fastavro raises what its parser meets
            return None, f"it does not fit schema {schema_id}: {_text(e)}"
        if datum.tell() != len(value):
            return None, f"{len(value) - datum.tell()} bytes follow what schema {schema_id} describes"
        return record, None

    def _writer(self, schema_id: int) -> _Writer:
        writer = self._read_writer(schema_id)
        self._writers[schema_id] = writer
        return writer

    def _read_writer(self, schema_id: int) -> _Writer:
        try:
            text = self._find(schema_id)
        except Unsupported as e:
            return _Writer(problem=f"its schema {schema_id} cannot be used: {e}")
        if text is None:
            return _Writer(problem=f"the registry has no schema {schema_id}")
        try:
            described = avro_schema.physical(avro_schema.load(text))
            return _Writer(fastavro.parse_schema(described), None if described == self._physical else self._reader)
        except Exception as e:  # a schema that fastavro cannot parse
            return _Writer(problem=f"its schema {schema_id} cannot be used: {_text(e)}")

    def _columns(self, raw: Sequence[Any]) -> pa.Array:
        return _with_logical(pa.array(raw, self.type.physical), self.type)

    def _columns_of_each(self, raw: Sequence[Any], problems: Sequence[str | None]) -> tuple[pa.Array, list[str | None]]:
        """As decode(): one of the records does not fit its columns."""
        fitting, all_problems = list(raw), list(problems)
        for i, record in enumerate(raw):
            if record is not None:
                try:
                    self._columns([record])
                except (pa.ArrowException, ArithmeticError, ValueError, OverflowError) as e:
                    fitting[i], all_problems[i] = None, f"a field does not fit its column: {_text(e)}"
        return self._columns(fitting), all_problems


class Encoder:
    """Encodes columns as records of one schema."""

    def __init__(self, schema: str, schema_id: int) -> None:
        self.type = avro_schema.read(schema)
        self._schema = fastavro.parse_schema(avro_schema.physical(avro_schema.load(schema)))
        self._prefix = PREFIX.pack(MAGIC, schema_id)

    def encode(self, records: pa.Array) -> pa.Array:
        """The records' values; a null record is a null value. Raises ValueError for one that the schema refuses."""
        out = io.BytesIO()
        values: list[bytes | None] = []
        for record in _rows(_without_logical(records, self.type), self.type):
            if record is None:
                values.append(None)
                continue
            out.seek(0)
            out.truncate()
            out.write(self._prefix)
            try:
                fastavro.schemaless_writer(out, self._schema, record)
            except Exception as e:  # fastavro raises what its writer meets
                raise ValueError(_refusal(record, self.type) or _text(e)) from None
            values.append(out.getvalue())
        return pa.array(values, pa.binary())


def _refusal(record: dict[str, Any], avro: AvroType, at: str = "") -> str | None:
    """Which field of a record the schema refuses, and why; None if it is not a null or an enum's symbol."""
    for name, kind in avro.fields:
        value, path = record.get(name), f"{at}{name}"
        if value is None:
            if not kind.nullable:
                return f"{path} is null, and the schema does not allow it"
        elif kind.kind == "enum" and value not in kind.symbols:
            return f"{path} is {value!r:.80}, which is no symbol of the enum"
        elif kind.kind == "fixed" and not kind.logical and len(value) != kind.size:
            return f"{path} has {len(value)} bytes, and the schema has a fixed of {kind.size}"
        elif kind.kind == "record" and (problem := _refusal(value, kind, f"{path}.")):
            return problem
    return None


def _with_stored_defaults(schema: Any) -> Any:
    """A parsed schema whose defaults of bytes are bytes: fastavro returns them as JSON has them, as text."""
    if isinstance(schema, list):
        return [_with_stored_defaults(s) for s in schema]
    if isinstance(schema, dict):
        for below in ("items", "values"):
            if below in schema:
                schema[below] = _with_stored_defaults(schema[below])
        for f in schema.get("fields", ()):
            f["type"] = _with_stored_defaults(f["type"])
            if "default" in f:
                f["default"] = _stored(f["type"], f["default"])
    return schema


def _stored(schema: Any, default: Any) -> Any:
    """The default of a type as a decoded value; in a union it is of the first type that is not null."""
    if isinstance(schema, list):
        schema = next((s for s in schema if s != "null"), "null")
    kind = schema["type"] if isinstance(schema, dict) else schema
    if default is None:
        return None
    if kind in ("bytes", "fixed") and isinstance(default, str):
        return default.encode("latin-1")
    if kind == "array":
        return [_stored(schema["items"], v) for v in default]
    if kind == "map":
        return {k: _stored(schema["values"], v) for k, v in default.items()}
    if kind == "record":
        return {
            f["name"]: _stored(f["type"], default[f["name"]]) if f["name"] in default else f.get("default")
            for f in schema["fields"]
        }
    return default


def _text(error: Exception) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


# ------------------------------------------------ logical types, by columns


def _with_logical(array: pa.Array, avro: AvroType) -> pa.Array:
    """A column as Avro stores it, with its logical types."""
    if array.type == avro.arrow:
        return array
    if avro.kind in ("record", "array", "map"):
        return _rebuilt(array, avro, _with_logical, avro.arrow)
    if avro.logical == "decimal":
        return pa.array([None if b is None else _decimal(b, avro.scale) for b in array.to_pylist()], avro.arrow)
    if avro.logical == "date":
        return array.view(pa.date32())
    zone = avro.arrow.tz
    unit = "ms" if str(avro.logical).endswith("millis") else "us"
    return array.view(pa.timestamp(unit, zone)).cast(avro.arrow)


def _without_logical(array: pa.Array, avro: AvroType) -> pa.Array:
    """A column of a type that fits (avro_schema.mismatches) as Avro stores it."""
    if avro.kind in ("record", "array", "map"):
        return _rebuilt(array, avro, _without_logical, avro.physical)
    if avro.logical == "decimal":
        return pa.array([None if d is None else _unscaled(d, avro) for d in array.to_pylist()], pa.binary())
    if str(avro.logical).endswith("millis"):
        return pc.floor_temporal(array, unit="millisecond").cast(pa.timestamp("ms", array.type.tz)).cast(pa.int64())
    return array.cast(avro.physical)


def _rebuilt(
    array: pa.Array, avro: AvroType, convert: Callable[[pa.Array, AvroType], pa.Array], kind: pa.DataType
) -> pa.Array:
    """A nested column with its parts converted. kind: its type afterwards."""
    nulls = array.is_null() if array.null_count else None
    if avro.kind == "record":
        # flatten() and not field(): a null record's fields are null, too.
        parts = dict(zip([f.name for f in array.type], array.flatten(), strict=True))
        columns = [convert(parts[name], t) for name, t in avro.fields]
        return pa.StructArray.from_arrays(columns, fields=list(kind), mask=nulls)
    array = pa.concat_arrays([array])  # offsets that start at 0
    offsets = array.offsets if nulls is None else _offsets_with_nulls(array, nulls)
    if avro.kind == "array":
        return pa.ListArray.from_arrays(offsets, convert(array.values, avro.content), type=kind)
    return pa.MapArray.from_arrays(offsets, array.keys.cast(pa.string()), convert(array.items, avro.content), type=kind)


def _offsets_with_nulls(array: pa.Array, nulls: pa.Array) -> pa.Array:
    """The offsets of lists, null for a null list, which is how from_arrays() takes nulls of either kind."""
    last = pa.array([False])
    return pc.if_else(pa.concat_arrays([nulls, last]), pa.scalar(None, pa.int32()), array.offsets)


def _decimal(stored: bytes, scale: int) -> decimal.Decimal:
    return decimal.Decimal(int.from_bytes(stored, "big", signed=True)).scaleb(-scale, _EXACT)


def _unscaled(value: decimal.Decimal, avro: AvroType) -> bytes:
    number = int(value.scaleb(avro.scale, _EXACT))
    if avro.kind == "fixed":
        return number.to_bytes(avro.size, "big", signed=True)
    return number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)


# ------------------------------------------------ Python values for fastavro


def _rows(array: pa.Array, avro: AvroType) -> list[Any]:
    """The values of a column for fastavro's writer."""
    if avro.kind == "record":
        names = [name for name, _ in avro.fields]
        columns = [_rows(part, t) for part, (_, t) in zip(array.flatten(), avro.fields, strict=True)]
        rows: list[Any] = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        return _with_nulls(rows, array)
    if avro.kind == "array":
        items, ends = _rows(array.values, avro.content), array.offsets.to_pylist()
        return _with_nulls([items[a:b] for a, b in pairwise(ends)], array)
    if avro.kind == "map":
        keys, items, ends = array.keys.to_pylist(), _rows(array.items, avro.content), array.offsets.to_pylist()
        entries = (dict(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(ends))
        return _with_nulls(list(entries), array)
    return array.to_pylist()  # type: ignore[no-any-return]


def _with_nulls(rows: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count == 0:
        return rows
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]
