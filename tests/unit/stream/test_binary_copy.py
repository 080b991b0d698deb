"""Rows in the format of COPY: the same bytes as psycopg's for each value, and what is refused."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Mapping
from decimal import Decimal

import pyarrow as pa
import pytest
from psycopg import postgres, pq
from psycopg.adapt import PyFormat, Transformer

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.postgres import binary_copy
from ackwright_stream.sinks.postgres.binary_copy import encoded

UTC = datetime.UTC
COLUMNS: Mapping[str, pa.Array] = {  # by the type of PostgreSQL's
    "bool": pa.array([True, None, False]),
    "int2": pa.array([127, None, -128], pa.int8()),
    "int4": pa.array([2**15 - 1, None, -1], pa.int16()),
    "int8": pa.array([2**31 - 1, None, -5], pa.int32()),
    "float4": pa.array([0.5, None, float("-inf")], pa.float32()),
    "float8": pa.array([0.25, None, -1e30], pa.float32()),
    "numeric": pa.array([Decimal("1.25"), None, Decimal("-12345678.90")], pa.decimal128(12, 2)),
    "text": pa.array(["", None, "naïve ☃ 𝄞"]),
    "bytea": pa.array([b"", None, b"\0\xff"]),
    "date": pa.array([datetime.date(1, 1, 1), None, datetime.date(9999, 12, 31)]),
    "timestamptz": pa.array(
        [datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC), None, datetime.datetime(1, 1, 1, tzinfo=UTC)],
        pa.timestamp("us", "UTC"),
    ),
    "timestamp": pa.array(
        [datetime.datetime(1900, 1, 2), None, datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)], pa.timestamp("us")
    ),
}


def as_psycopg(columns: Mapping[str, pa.Array]) -> bytes:
    """The rows as psycopg encodes them, value by value."""
    transformer = Transformer()
    transformer.set_dumper_types([postgres.types[name].oid for name in columns], pq.Format.BINARY)
    output = b""
    for row in zip(*(column.to_pylist() for column in columns.values()), strict=True):
        output += struct.pack(">h", len(row))
        for value in transformer.dump_sequence(row, [PyFormat.BINARY] * len(row)):
            output += b"\xff" * 4 if value is None else struct.pack(">i", len(value)) + bytes(value)
    return output


@pytest.mark.parametrize("at_once", [1 << 20, 1])
def test_every_value_has_the_bytes_that_psycopg_sends(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """Also in parts, and in slices of arrays."""
    monkeypatch.setattr(binary_copy, "_AT_ONCE", at_once)
    longer = {name: pa.concat_arrays([column, column, column]).slice(2, 6) for name, column in COLUMNS.items()}
    parts = list(encoded(list(longer.values()), list(longer), list(longer)))
    assert b"".join(parts) == as_psycopg(longer)
    assert len(parts) == (6 if at_once == 1 else 1)


def test_jsonb_begins_with_its_version_and_an_integer_may_be_numeric() -> None:
    (rows,) = encoded([pa.array(["{}", None]), pa.array([5, -5], pa.int64())], ["jsonb", "numeric"], ["a", "b"])
    five, minus = ({"numeric": pa.array([Decimal(n)])} for n in (5, -5))
    fields = (b"\0\0\0\3\1{}", as_psycopg(five)[2:], b"\xff" * 4, as_psycopg(minus)[2:])
    assert bytes(rows) == b"\0\2" + fields[0] + fields[1] + b"\0\2" + fields[2] + fields[3]


def test_no_rows_are_no_bytes() -> None:
    assert list(encoded([pa.array([], pa.int64())], ["int8"], ["a"])) == []


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("text", pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False)),
        ("date", pa.array([-719_163], pa.int32()).cast(pa.date32())),
        ("timestamp", pa.array([253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us"))),
    ],
)
def test_a_value_that_cannot_be_sent_is_refused_with_its_column(kind: str, column: pa.Array) -> None:
    with pytest.raises(JobError, match="column 'a' has a value that PostgreSQL cannot hold") as caught:
        list(encoded([column], [kind], ["a"]))
    assert caught.value.reason is Reason.ROW_REFUSED
