"""The columns of a transform's output as columns of a PostgreSQL table: which types fit. Contacts no server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    ShortType,
    StringType,
    StructField,
    TimestampNTZType,
    TimestampType,
)

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import PostgresSink, Reason
from ackwright_stream.positions import RESERVED

_LONGEST_NAME = 63  # bytes in UTF-8
# The types of PostgreSQL that hold every value of a type of Spark's; the first is that of a table that is created.
_FITTING: Mapping[type[DataType], tuple[str, ...]] = {
    BooleanType: ("bool",),
    ByteType: ("int2", "int4", "int8", "numeric"),
    ShortType: ("int2", "int4", "int8", "numeric"),
    IntegerType: ("int4", "int8", "numeric"),
    LongType: ("int8", "numeric"),
    FloatType: ("float4", "float8"),
    DoubleType: ("float8",),
    DecimalType: ("numeric",),
    StringType: ("text", "varchar", "bpchar", "json", "jsonb"),
    BinaryType: ("bytea",),
    DateType: ("date",),
    TimestampType: ("timestamptz",),
    TimestampNTZType: ("timestamp",),
}


@dataclass(frozen=True)
class TableColumn:
    """A column of a table, as the server describes it."""

    type: str  # PostgreSQL's internal name, without length; of a domain its base type
    declared: str  # as in CREATE TABLE
    required: bool  # NOT NULL without a default
    scale: int | None = None  # decimal places of a numeric that has a scale, or of seconds if they are limited
    generated: bool = False  # the server computes it
    not_null: bool = False


def to_sink_columns(output: DataFrame, sink: PostgresSink) -> DataFrame:
    """The output, if its columns can be rows of a table.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    names = list(output.columns)
    problems = [f"column {name!r} appears twice" for name in sorted({n for n in names if names.count(n) > 1})]
    problems += [f"column {n!r} begins with {RESERVED}, which is reserved; rename it" for n in names if _is_reserved(n)]
    problems += [
        f"column {name!r} has {len(name.encode())} bytes; PostgreSQL cuts names off after {_LONGEST_NAME}; rename it"
        for name in names
        if len(name.encode()) > _LONGEST_NAME
    ]
    problems += [_no_type(field) for field in output.schema.fields if type(field.dataType) not in _FITTING]
    named_columns = [("key", name) for name in sink.key]
    named_columns += [("versionColumn", name) for name in (sink.version_column,) if name]
    named_columns += [("deletedColumn", name) for name in (sink.deleted_column,) if name]
    problems += [
        f"sink.postgres.{field} names the column {name!r}, which the transform does not return; it returns "
        f"{', '.join(names)}"
        for field, name in named_columns
        if name not in names
    ]
    if sink.deleted_column in names and not isinstance(output.schema[sink.deleted_column].dataType, BooleanType):
        problems.append(f"the deletedColumn {sink.deleted_column!r} must be a boolean; cast it")
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    return output


def _is_reserved(name: str) -> bool:
    return name.lower().startswith(RESERVED)  # names in Spark SQL ignore case


def _no_type(field: StructField) -> str:
    name = field.dataType.simpleString()
    remedy = "to a type" if name == "void" else "to a column of type jsonb with to_json, or leave it out"
    return f"column {field.name!r} is {name}, which no column of a table holds; convert it {remedy}"


def table_fields(fields: Iterable[StructField], sink: PostgresSink) -> list[StructField]:
    """Those of the output's columns that are columns of the table."""
    return [field for field in fields if field.name != sink.deleted_column]


def problems_with(fields: Iterable[StructField], table: Mapping[str, TableColumn]) -> list[str]:
    """Why rows with these fields do not fit into a table with these columns."""
    output = {field.name: field for field in fields}
    problems = []
    for name, field in output.items():
        column = table.get(name)
        if column is None:
            problems.append(_missing(name, field.dataType, table))
        elif column.generated:
            problems.append(f"column {name!r} is computed by the server; leave it out of the transform")
        elif not _fits(field.dataType, column):
            problems.append(
                f"column {name!r} is {field.dataType.simpleString()} in the output and {column.declared} in the table; "
                f"cast it in the transform, or make the column {created_type(field.dataType)}"
            )
    problems += [
        f"column {name!r} of the table is NOT NULL without a default, and the transform does not return it"
        for name, column in table.items()
        if column.required and name not in output
    ]
    return problems


def _missing(name: str, kind: DataType, table: Mapping[str, TableColumn]) -> str:
    similar = next((known for known in table if known.lower() == name.lower()), None)
    if similar:
        return f"the table's column is {similar!r} and the output's {name!r}: write the same letters"
    return f"the table has no column {name!r}; add it ({created_type(kind)}), or leave it out of the transform"


def _fits(kind: DataType, column: TableColumn) -> bool:
    """Whether the column takes the values. Single values can still be too large or too long.

    A time's seconds are rounded to the decimal places of the column: Spark has no type with fewer than six.
    """
    if column.type not in _FITTING[type(kind)]:
        return False
    if not isinstance(kind, DecimalType | IntegralType):
        return True
    scale = kind.scale if isinstance(kind, DecimalType) else 0
    return column.scale is None or column.scale >= scale  # the scale of numeric(4, -2) is negative


def created_type(kind: DataType) -> str:
    """The type of a column that is created for values of a type of Spark's."""
    name = _FITTING[type(kind)][0]
    return f"numeric({kind.precision},{kind.scale})" if isinstance(kind, DecimalType) else name
