"""Compares numbers that two runs round differently: sums and averages of fractions, equal within a tolerance.

An actual number within the tolerance of the expected one is replaced by it, and then all rows are compared exactly. To
which expected row an actual one belongs, the rest of the row says: its other columns, and what text has beside numbers.
No two expected rows may have the same rest (is_ambiguous()): the nearest number need not be the right one.

In text a number counts that stands alone, or as a value of JSON, and is written as Spark writes a DOUBLE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, FloatType

from ackwright_stream.column_names import named

_NUMBER = re.compile(rb'(?<![^\s:,\[{"])-?(?:0|[1-9]\d*)\.(?:0|\d*[1-9])(?:E-?\d+)?(?![^\s,\]}"])')
_REST, _NUMBERS, _EXPECTED = "ackwright_rest", "ackwright_numbers", "ackwright_expected"


def are_numbers(output: DataFrame, rounded: Mapping[str, float]) -> bool:
    """Whether these columns of an output have a number as their value, and not within a struct or text."""
    types = {field.name: field.dataType for field in output.schema.fields}
    return all(isinstance(types[name], FloatType | DoubleType) for name in rounded)


def is_ambiguous(records: DataFrame, tolerances: Mapping[str, float]) -> bool:
    """Whether rows of the output differ in these columns' numbers alone. tolerances: by column."""
    rows = _with_parts(records, tolerances, records.columns)
    several = rows.groupBy(_REST).agg(F.count_distinct(_NUMBERS).alias("n")).filter("n > 1")
    return several.first() is not None


def with_expected_numbers(
    actual: DataFrame, expected: DataFrame, tolerances: Mapping[str, float], columns: Sequence[str]
) -> DataFrame:
    """The actual rows, with the expected numbers in place of those within the tolerance.

    expected: without ambiguous rows. columns: those of the output, which both have.
    """
    of_output = F.first(F.struct(F.col(_NUMBERS), *map(named, tolerances))).alias(_EXPECTED)
    numbered = _with_parts(expected, tolerances, columns).groupBy(_REST).agg(of_output)
    rows = _with_parts(actual, tolerances, columns).join(numbered, _REST, "left")
    close = [
        _all_close(F.col(_NUMBERS)[i], F.col(_EXPECTED)[_NUMBERS][i], tolerance)
        for i, tolerance in enumerate(tolerances.values())
    ]
    same = F.coalesce(reduce(Column.__and__, close), F.lit(False))
    replaced = {name: F.when(same, F.col(_EXPECTED)[name]).otherwise(named(name)) for name in tolerances}
    return rows.select(*(replaced[c].alias(c) if c in replaced else named(c) for c in actual.columns))


def _with_parts(rows: DataFrame, tolerances: Mapping[str, float], columns: Sequence[str]) -> DataFrame:
    """The rows with the parts by which they are compared: _REST, and _NUMBERS, an array for each of these columns."""
    rest: list[Column] = []
    numbers: list[Column] = []
    for name in columns:
        kind, value = rows.schema[name].dataType, named(name)
        if name not in tolerances:
            # A record without headers and one with empty headers are the same.
            rest.append(F.coalesce(value, F.array().cast(kind)) if isinstance(kind, ArrayType) else value)
    for name in tolerances:
        if isinstance(rows.schema[name].dataType, BinaryType):
            parts = F.arrow_udf(text_parts, "struct<rest: binary, numbers: array<double>>")(named(name))
            rest.append(parts["rest"])
            numbers.append(parts["numbers"])
        else:
            numbers.append(F.array(named(name).cast("double")))
    fields = (part.alias(f"c{i}") for i, part in enumerate(rest))
    key = F.struct(F.lit(0).alias("none"), *fields)
    return rows.withColumns({_REST: key, _NUMBERS: F.array(*numbers)})


def _all_close(actual: Column, expected: Column, tolerance: float) -> Column:
    """Whether the numbers of two arrays are as many, and equal within the tolerance."""

    def close(a: Column, b: Column) -> Column:
        return a.eqNullSafe(b) | F.coalesce(F.abs(a - b) <= tolerance * F.abs(b), F.lit(False))

    return F.forall(F.zip_with(actual, expected, close), lambda each: each)


def text_parts(values: pa.Array) -> pa.Array:
    """Of texts, what stands beside their numbers, and the numbers."""
    texts = values.to_pylist()
    rest = [None if text is None else _NUMBER.sub(b"\0", text) for text in texts]
    numbers = [None if text is None else [float(number) for number in _NUMBER.findall(text)] for text in texts]
    return pa.StructArray.from_arrays(
        [pa.array(rest, pa.binary()), pa.array(numbers, pa.list_(pa.float64()))], names=["rest", "numbers"]
    )
