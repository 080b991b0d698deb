"""Format binary: key and value are bytes, passed through as they are."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from ackwright_stream.formats.base import METADATA, Parsed, column, single_value_problems
from ackwright_stream.jobspec import Format, OutputSchema, SchemaRegistry, Source


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """Columns key BINARY and value BINARY. No record is malformed."""
    return Parsed(records, lambda rows: rows.select(F.col(f"{METADATA}.key"), F.col(f"{METADATA}.value"), METADATA))


def value_problems(fields: Sequence[StructField]) -> list[str]:
    return single_value_problems(fields, Format.BINARY)


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    return column(fields[0])
