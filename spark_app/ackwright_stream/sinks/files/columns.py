"""The columns of a transform's output as columns of Parquet files: which types fit. Contacts no server."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql.types import (
    StructField,
    StructType,
)

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.parquet_columns import column_problems


def to_sink_columns(output: DataFrame) -> DataFrame:
    """The output, if its columns can be those of a file.

    Raises JobError(INVALID_TRANSFORM) with everything that is wrong.
    """
    problems = column_problems(output.schema)
    if problems:
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    return output


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
