"""The columns of a transform's output as columns of Parquet files: which types fit. Contacts no server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from pyspark.sql import DataFrame
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


def to_sink_columns(output: DataFrame) -> DataFrame:
    """The output, if its columns can be those of a file.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    names = list(output.columns)
    counts = Counter(name.lower() for name in names)  # many readers ignore case
    problems = [f"column {name!r} appears twice" for name in sorted(name for name, n in counts.items() if n > 1)]
    problems += [f"column {n!r} begins with {RESERVED}, which is reserved; rename it" for n in names if _is_reserved(n)]
    problems += [_no_type(field) for field in output.schema.fields if not _is_written(field.dataType)]
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    return output


def _is_reserved(name: str) -> bool:
    return name.lower().startswith(RESERVED)  # names in Spark SQL ignore case


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


def problems_with(fields: Iterable[StructField], written: StructType) -> list[str]:
    """Why rows with these fields cannot be read together with files that have or had these columns."""
    columns = {field.name.lower(): field for field in written.fields}
    problems = []
    for field in fields:
        column = columns.get(field.name.lower())
        if column is None:
            continue
        if column.name != field.name:
            problems.append(
                f"the files have a column {column.name!r} and the output has {field.name!r}: write the same letters"
            )
        elif column.dataType.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {field.name!r} is {field.dataType.simpleString()} in the output and "
                f"{column.dataType.simpleString()} in files that were written before; cast it in the transform, or "
                "give it another name"
            )
    return problems


def with_columns(written: StructType, fields: Iterable[StructField]) -> StructType:
    """The columns that files have or had, and those of the output. problems_with() has returned none."""
    names = {field.name for field in written.fields}
    added = [StructField(field.name, field.dataType) for field in fields if field.name not in names]
    return StructType([*written.fields, *added])
