"""Rows of Arrow record batches in the format of `COPY … (FORMAT binary)`, column by column and not value by value.

The format is that of PostgreSQL's documentation of COPY, the values' that of the types' functions `…_recv`.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Iterator, Sequence
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.types.numeric import DecimalBinaryDumper

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reasons import REASONS

HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
TRAILER = b"\xff\xff"
_NULL = pa.scalar(b"\xff\xff\xff\xff", pa.binary())  # the length -1
_AT_ONCE = 64 << 20  # bytes of the rows that are encoded at once; an array cannot have more than 2 GB
# How values of a fixed size are sent, and the Arrow type that has the same values.
_FIXED: dict[str, tuple[str, pa.DataType]] = {
    "bool": ("u1", pa.uint8()),
    "int2": (">i2", pa.int16()),
    "int4": (">i4", pa.int32()),
    "int8": (">i8", pa.int64()),
    "float4": (">f4", pa.float32()),
    "float8": (">f8", pa.float64()),
    "date": (">i4", pa.int32()),
    "timestamp": (">i8", pa.int64()),
    "timestamptz": (">i8", pa.int64()),
}
_EPOCH_DAY = 10_957  # 2000-01-01, from which PostgreSQL counts, in days since 1970-01-01
_EPOCH = {"date": _EPOCH_DAY, "timestamp": _EPOCH_DAY * 86_400_000_000, "timestamptz": _EPOCH_DAY * 86_400_000_000}
_DAYS = [(datetime.date(year, *day) - datetime.date(1970, 1, 1)).days for year, day in ((1, (1, 1)), (9999, (12, 31)))]


def encoded(columns: Sequence[pa.Array], types: Sequence[str], names: Sequence[str]) -> Iterator[memoryview]:
    """The rows of the columns, in parts. types: PostgreSQL's internal names of the columns' types.

    Raises JobError(ROW_REFUSED) for text that is not UTF-8, and for times outside of the years 1 to 9999.
    """
    for column, kind, name in zip(columns, types, names, strict=True):
        _check(column, kind, name)
    rows = len(columns[0])
    step = max(1, rows * _AT_ONCE // max(1, sum(column.nbytes for column in columns)))
    for start in range(0, rows, step):
        parts = [pa.scalar(struct.pack(">h", len(columns)), pa.binary())]
        for column, kind in zip(columns, types, strict=True):
            parts += _fields(column.slice(start, step), kind)
        joined = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))
        _, offsets, data = joined.buffers()
        yield memoryview(data)[: int(np.frombuffer(offsets, np.int32, len(joined) + 1)[-1])]


def _check(column: pa.Array, kind: str, name: str) -> None:
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column.validate(full=True)
        elif kind in _EPOCH:
            limits = _DAYS if kind == "date" else [_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1]
            ends = pc.min_max(column.cast(_FIXED[kind][1])).as_py()
            if ends["min"] is not None and not limits[0] <= ends["min"] <= ends["max"] <= limits[1]:
                raise pa.ArrowInvalid("a time is out of range")
    except pa.ArrowInvalid:
        raise JobError(
            Reason.ROW_REFUSED,
            f"column {name!r} has a value that PostgreSQL cannot hold (text must be UTF-8, and times in the years "
            f"{datetime.MINYEAR} to {datetime.MAXYEAR})",
            REASONS[Reason.ROW_REFUSED].remedy,
        ) from None


def _fields(column: pa.Array, kind: str) -> list[pa.Array]:
    """Arrays whose values, one after the other, are the length and the value of each field."""
    if kind in _FIXED:
        return [_fixed(column, kind)]
    if kind == "numeric":
        dump = DecimalBinaryDumper(Decimal).dump
        column = pa.array(
            [None if v is None else bytes(dump(Decimal(v)) or b"") for v in column.to_pylist()], pa.binary()
        )
    values = column.cast(pa.binary())
    lengths = pc.binary_length(values)
    if kind == "jsonb":  # the version of its format, then its text
        values = pc.binary_join_element_wise(pa.scalar(b"\x01", pa.binary()), values, pa.scalar(b"", pa.binary()))
        lengths = pc.add(lengths, 1)
    return [_equally_long(pc.fill_null(lengths, -1).to_numpy().astype(">i4")), pc.fill_null(values, b"")]


def _fixed(column: pa.Array, kind: str) -> pa.Array:
    sent_as, same = _FIXED[kind]
    values = column.cast(same)
    field = np.empty(len(column), [("length", ">i4"), ("value", sent_as)])
    field["length"] = np.dtype(sent_as).itemsize
    field["value"] = pc.subtract(pc.fill_null(values, 0), _EPOCH[kind]) if kind in _EPOCH else pc.fill_null(values, 0)
    fields = _equally_long(field)
    return pc.if_else(column.is_valid(), fields, _NULL) if column.null_count else fields


def _equally_long(values: npt.NDArray[np.generic]) -> pa.Array:
    """The bytes of each value."""
    size = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
