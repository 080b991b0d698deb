"""Columns that every sink of Parquet files can hold. Contacts no server."""

from __future__ import annotations

from collections import Counter

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ackwright_stream.positions import RESERVED

_TYPES: tuple[type[DataType], ...] = (
    BinaryType,
    BooleanType,
    ByteType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)


def column_problems(output: StructType) -> list[str]:
    """Why the columns of an output cannot be those of Parquet files."""
    counts = Counter(field.name.lower() for field in output.fields)  # Spark and many readers ignore case
    problems = [f"column {name!r} appears twice" for name, n in sorted(counts.items()) if n > 1]
    problems += [
        f"column {name!r} begins with {RESERVED}, which is reserved; rename it"
        for name in output.names
        if name.lower().startswith(RESERVED)
    ]
    return problems + [_no_type(field) for field in output.fields if not _is_written(field.dataType)]


def _is_written(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_written(kind.elementType)
        case StructType():
            return bool(kind.fields) and all(_is_written(field.dataType) for field in kind.fields)
        case _:
            return type(kind) in _TYPES


def _no_type(field: StructField) -> str:
    name = field.dataType.simpleString()
    remedy = "cast it" if name == "void" else "convert it with to_json, or leave it out"
    return f"column {field.name!r} is {name}, which this sink does not write; {remedy}"
