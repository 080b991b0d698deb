"""Format string: key and value are UTF-8 text."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from ackwright_stream.formats.base import METADATA, Parsed, column, is_utf8, single_value_problems
from ackwright_stream.jobspec import Format, OutputSchema, SchemaRegistry, Source


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """Columns key STRING and value STRING. A record whose key or value is not UTF-8 is malformed."""
    key, value = F.col(f"{METADATA}.key"), F.col(f"{METADATA}.value")
    return Parsed(
        records.select(METADATA, key.cast("string").alias("key"), value.cast("string").alias("value")),
        lambda rows: rows.select("key", "value", METADATA),
        malformed=~(is_utf8("key") & is_utf8("value")),
        expected="UTF-8 text",
    )


def value_problems(fields: Sequence[StructField]) -> list[str]:
    return single_value_problems(fields, Format.STRING)


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    return column(fields[0])
