"""Columns of every type that Avro can hold, and rows of them, for Hypothesis."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import types as T

_LEAVES: list[tuple[T.DataType, st.SearchStrategy[Any]]] = [
    (T.BooleanType(), st.booleans()),
    (T.ByteType(), st.integers(-(2**7), 2**7 - 1)),
    (T.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    (T.LongType(), st.integers(-(2**63), 2**63 - 1)),
    (T.FloatType(), st.floats(width=32, allow_nan=False)),
    (T.DoubleType(), st.floats(allow_nan=False)),
    (T.StringType(), st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    (T.BinaryType(), st.binary(max_size=8)),
    (T.DateType(), st.dates(date(1, 1, 1), date(9999, 12, 31))),
    (T.TimestampType(), st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))),
    (T.TimestampNTZType(), st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))),
    (
        T.DecimalType(38, 10),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(n).scaleb(-10, Context(prec=60))),
    ),
    (T.DecimalType(5, 0), st.integers(-99_999, 99_999).map(Decimal)),
]
Typed = tuple[T.DataType, st.SearchStrategy[Any]]


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def _array(of: Typed) -> Typed:
    return T.ArrayType(of[0]), st.lists(_nullable(of[1]), max_size=3)


def _map(of: Typed) -> Typed:
    entries = st.dictionaries(st.text("abc", max_size=2), _nullable(of[1]), max_size=3)
    return T.MapType(T.StringType(), of[0]), entries.map(lambda d: list(d.items()))


def _record(of: list[Typed]) -> Typed:
    fields = [T.StructField(f"f{i}", kind) for i, (kind, _) in enumerate(of)]
    return T.StructType(fields), st.fixed_dictionaries({f"f{i}": _nullable(v) for i, (_, v) in enumerate(of)})


_TYPES = st.recursive(
    st.sampled_from(_LEAVES),
    lambda below: below.map(_array) | below.map(_map) | st.lists(below, min_size=1, max_size=3).map(_record),
    max_leaves=5,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[T.StructType, list[Any]]:
    """Columns, and rows of them; a row may be null."""
    kind, values = _record(draw(st.lists(_TYPES, min_size=1, max_size=4)))
    assert isinstance(kind, T.StructType)
    return kind, draw(st.lists(_nullable(values), max_size=5))
