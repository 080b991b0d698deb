"""Columns and text that every sink of Parquet files can hold. Contacts no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
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

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import RESERVED
from ackwright_stream.reasons import REASONS
from ackwright_stream.storage_errors import one_line, shortened

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


# Python's dates end with the year 9999, and Spark's do not.
_OF_VALUES = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError)


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


def require_utf8(batch: pa.RecordBatch) -> None:
    """Raises JobError(ROW_REFUSED) for text that is not UTF-8, also within arrays and structs.

    Spark passes such bytes through as STRING, and many readers refuse a whole file that has some.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            raise JobError(
                Reason.ROW_REFUSED,
                f"column {name!r} has text that is not UTF-8, which many readers refuse; return it as BINARY",
                REASONS[Reason.ROW_REFUSED].remedy,
            ) from None


@contextmanager
def encoding(what: str = "rows cannot be written as Parquet") -> Iterator[None]:
    """Raises JobError(ROW_REFUSED) in place of the errors of values. what: what such values prevent.

    Failure window: an error of a value that is taken for one of the server would be tried again forever.
    """
    try:
        yield
    except _OF_VALUES as e:
        cause = f"{what}: {shortened(one_line(str(e)))}"
        raise JobError(Reason.ROW_REFUSED, cause, REASONS[Reason.ROW_REFUSED].remedy) from None


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
