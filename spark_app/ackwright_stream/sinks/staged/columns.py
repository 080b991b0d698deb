"""The columns of a transform's output as columns of a table: which types fit. Contacts no server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import (
    ArrayType,
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
)

from ackwright_stream.column_names import named
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.parquet_columns import column_problems

_INTEGERS: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)  # from narrow to wide
_PARTITION_TYPES: tuple[type[DataType], ...] = (*_INTEGERS, StringType, BooleanType, DateType)


@dataclass(frozen=True)
class Rules:
    """What a kind of table requires of columns."""

    spec: str  # for instance "sink.delta"
    not_in_names: str  # characters
    name_problem: str  # how a message lists them, and which store does not allow them
    files_have_partitions: bool  # whether files hold the partition columns as well


def require_columns(output: DataFrame, partition_columns: Sequence[str], rules: Rules) -> DataFrame:
    """The output, if its columns can be those of a table.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    names = list(output.columns)
    problems = column_problems(output.schema)
    problems += [f"column {n!r} has {rules.name_problem}; rename it" for n in names if set(rules.not_in_names) & set(n)]
    by_name = {field.name: field for field in output.schema.fields}
    for name in partition_columns:
        field = by_name.get(name)
        if field is None:
            problems.append(
                f"{rules.spec}.partitionColumns names the column {name!r}, which the transform does not return; it "
                f"returns {', '.join(names)}"
            )
        elif type(field.dataType) not in _PARTITION_TYPES:
            problems.append(
                f"the partition column {name!r} is {field.dataType.simpleString()}; cast it to a string, a date, a "
                "boolean or a whole number"
            )
    if not rules.files_have_partitions and not set(names) - set(partition_columns):
        problems.append("every column is a partition column; return one that is not, which files can hold")
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    return output


def problems_with(fields: Iterable[StructField], table: StructType) -> list[str]:
    """Why rows with these fields do not fit into a table with this schema."""
    output, columns = {field.name: field for field in fields}, {field.name: field for field in table.fields}
    problems = []
    for name, field in output.items():
        column = columns.get(name)
        if column is None:
            problems.append(_missing(name, field.dataType, columns))
        elif not _fits(field.dataType, column.dataType):
            problems.append(
                f"column {name!r} is {field.dataType.simpleString()} in the output and "
                f"{column.dataType.simpleString()} in the table; cast it in the transform"
            )
    problems += [
        f"column {name!r} of the table is NOT NULL, and the transform does not return it"
        for name, column in columns.items()
        if not column.nullable and name not in output
    ]
    return problems


def _missing(name: str, kind: DataType, table: Iterable[str]) -> str:
    similar = next((known for known in table if known.lower() == name.lower()), None)
    if similar:
        return f"the table's column is {similar!r} and the output's {name!r}: write the same letters"
    return f"the table has no column {name!r}; add it ({kind.simpleString()}), or leave it out of the transform"


def _fits(kind: DataType, column: DataType) -> bool:
    """Whether the column takes every value without a loss."""
    match kind, column:
        case (ArrayType(), ArrayType()):
            return _fits(kind.elementType, column.elementType) and (column.containsNull or not kind.containsNull)
        case (StructType(), StructType()):
            return [f.name for f in kind.fields] == [f.name for f in column.fields] and all(
                _fits(f.dataType, c.dataType) and (c.nullable or not f.nullable)
                for f, c in zip(kind.fields, column.fields, strict=True)
            )
        case (DecimalType(), DecimalType()):
            return bool(kind.scale <= column.scale and kind.precision - kind.scale <= column.precision - column.scale)
        case (FloatType(), DoubleType()):
            return True
        case _:
            wide = _INTEGERS[_INTEGERS.index(type(kind)) :] if type(kind) in _INTEGERS else (type(kind),)
            return type(column) in wide


def in_types_of(rows: DataFrame, table: StructType) -> DataFrame:
    """The rows with the table's types, which the files must have. problems_with() has returned none."""
    types = {field.name: field.dataType for field in table.fields}

    def column(field: StructField) -> Column:
        value, kind = named(field.name), types[field.name]
        return value if field.dataType == kind else value.cast(kind).alias(field.name)

    return rows.select(*(column(field) for field in rows.schema.fields))
