"""Avro records from and to Arrow columns, in the framing of Confluent's registry: 0, the schema's id in 4 bytes, datum.

fastavro reads and writes the values as Avro stores them; logical types are conversions of whole Arrow columns. So no
value passes through Python's datetime, and the reader's logical types count. A writer's schema with other ones does not
resolve (avro_resolution.py).
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
from ackwright_stream.formats.avro_resolution import clause, misread_field, parsed, store_defaults
from ackwright_stream.formats.avro_schema import AvroType
from ackwright_stream.formats.registered import MAGIC, PREFIX, Find, Unsupported, Writers, decoded_each

_EXACT = decimal.Context(prec=avro_schema.LONGEST_DECIMAL + 1, traps=[decimal.Inexact, decimal.InvalidOperation])


@dataclass(frozen=True)
class _Writer:
    """What decodes the records of a writer's schema, in fastavro's form."""

    schema: Any
    reader: Any  # None: the same as the writer's


class Decoder:
    """Decodes records of any writer's schema into the columns of one reader's schema.

    Raises Unsupported for a reader's schema without columns.
    """

    def __init__(self, schema: str, find: Find) -> None:
        self.type = avro_schema.read(schema)
        self._reader = parsed(schema)
        store_defaults(self._reader)
        self._writers = Writers(find, self._read_writer)

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[str | None]]:
        """The records, of type self.type.arrow, and for each what is wrong with it. A null value is a null record.

        Raises what the function that finds schemas raises.
        """
        raw, problems = decoded_each(values, self._writers, self._one)
        try:
            return self._columns(raw), problems
        except (pa.ArrowException, ArithmeticError, ValueError, OverflowError):
            return self._columns_of_each(raw, problems)

    def _one(self, value: bytes, schema_id: int, writer: _Writer) -> tuple[Any, str | None]:
        datum = io.BytesIO(value)
        datum.seek(PREFIX.size)
        try:
            record = fastavro.schemaless_reader(datum, writer.schema, writer.reader)
        except Exception as e:  # fastavro raises what its parser meets
            return None, f"it does not fit schema {schema_id}: {clause(e)}"
        if datum.tell() != len(value):
            return None, f"{len(value) - datum.tell()} bytes follow what schema {schema_id} describes"
        return record, None

    def _read_writer(self, text: str) -> _Writer:
        writer = parsed(text)
        if problem := misread_field(writer, self._reader):
            raise Unsupported(problem)
        return _Writer(writer.schema, None if writer.source == self._reader.source else self._reader.schema)

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
                    fitting[i], all_problems[i] = None, f"a field does not fit its column: {clause(e)}"
        return self._columns(fitting), all_problems


class Encoder:
    """Encodes columns as records of one schema. Raises Unsupported for a schema without columns."""

    def __init__(self, schema: str, schema_id: int) -> None:
        self.type = avro_schema.read(schema)
        self._schema = parsed(schema).schema
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
                raise ValueError(_refusal(record, self.type) or clause(e)) from None
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
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), avro.physical)
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
