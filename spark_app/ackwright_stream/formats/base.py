"""What a module of a format provides, and what several of them share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, NullType, StringType, StructField, StructType

from ackwright_stream.column_names import named
from ackwright_stream.jobspec import Format, OutputSchema, SchemaRegistry, Source

# The column with the record as it is in Kafka: key, value, topic, partition, offset, timestamp, headers.
METADATA = "kafka"


@dataclass(frozen=True)
class Parsed:
    """Records of the source after parsing, before the malformed ones are counted and refused."""

    rows: DataFrame  # METADATA, and whatever `view` and `malformed` read
    view: Callable[[DataFrame], DataFrame]  # from `rows` that were checked to the columns that the transform reads
    malformed: Column | None = None  # whether a row is malformed; None: a record of this format cannot be
    expected: str = ""  # what a malformed record is not, such as "UTF-8 text"
    problem: Column | None = None  # why a row is malformed; None: `expected` says it
    shown: Column | None = None  # the beginning of a record for a message; None: its text


class RecordFormat(Protocol):
    """A module of this package."""

    def parse(self, records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
        """Parses the records of a frame whose only column is METADATA.

        registry: as JobSpec.schema_registry. Raises JobError(INVALID_SPEC) for a schema that is wrong.
        """
        ...

    def value_problems(self, fields: Sequence[StructField]) -> list[str]:
        """Why these columns of an output, without those that the sink reserves, cannot be a record's value."""
        ...

    def to_value(self, fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
        """A record's value, BINARY or STRING, from columns without value_problems()."""
        ...


def is_utf8(name: str) -> Column:
    """Whether a column of text is valid UTF-8 or null."""
    return F.coalesce(F.is_valid_utf8(F.col(name)), F.lit(True))


def column(field: StructField) -> Column:
    """The column of a field."""
    return named(field.name)


def type_problems(name: str, field: StructField | None, allowed: tuple[type[DataType], ...]) -> list[str]:
    """What is wrong with the type of a column; an absent column and an untyped null are fine."""
    if field is None or isinstance(field.dataType, (*allowed, NullType)):
        return []
    types = " or ".join(t().simpleString().upper() for t in allowed)
    nested = isinstance(field.dataType, StructType | MapType | ArrayType)
    cast = f"to_json({field.name})" if nested else f"CAST({field.name} AS STRING)"
    return [f"column {name!r} is {field.dataType.simpleString().upper()}, not {types}; write {cast} AS {name}"]


def single_value_problems(fields: Sequence[StructField], name: Format) -> list[str]:
    """What is wrong with the columns of a format whose value is the column `value` itself."""
    value = next((f for f in fields if f.name.lower() == "value"), None)
    problems = [] if value else [f"the transform lacks the column value, which sink format {name} writes; select one"]
    problems += [
        f"column {f.name!r} cannot be written with sink format {name}, which takes value, key, topic and "
        "headers; leave it out, or choose format json"
        for f in fields
        if f.name.lower() != "value"
    ]
    return problems + type_problems("value", value, (StringType, BinaryType))
