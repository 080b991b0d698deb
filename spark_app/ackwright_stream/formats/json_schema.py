"""Format jsonSchema: a value is one JSON object in the framing of a Confluent-compatible schema registry.

Values are validated and decoded by Python workers, in Arrow batches, before the transform. After it Spark writes the
text, as in format json, and workers validate it, unless no value could fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, MapType, StructField, StructType

from ackwright_stream.formats import json_schema_types
from ackwright_stream.formats.base import METADATA, Parsed
from ackwright_stream.formats.json import to_text
from ackwright_stream.formats.json_schema_values import Decoder, Encoder, validator
from ackwright_stream.formats.registered import (
    MAGIC,
    PREFIX,
    TYPES,
    Known,
    decode_udf,
    encode_udf,
    finder,
    name_of,
    no_columns_problem,
    record_column,
    require_valid,
    required,
    value_fields,
)
from ackwright_stream.jobspec import Format, OutputSchema, SchemaRegistry, Source

_SHOWN = 200  # bytes of a malformed record in the message


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """The columns of the reader's schema; the key is in kafka.key.

    A record is malformed without the framing, with the id of a schema that the registry does not have, if it is not
    valid for that schema, and if a property does not fit its column. A property that the reader's schema does not have
    is left out. A tombstone (value null) is well-formed, and its columns are null.
    """
    schema, registry = required(source.schema, "source.schema"), required(registry, "schema_registry")
    read = partial(_decoder, schema, tuple(source.writer_schemas.items()), registry, source.subject)
    decode, decoded = decode_udf(json_schema_types.read(schema).spark, read), F.col("decoded")
    value = F.col(f"{METADATA}.value")
    is_framed = F.substring(value, 1, 1) == F.lit(bytes([MAGIC]))
    text = F.when(is_framed, F.substring(value, PREFIX.size + 1, _SHOWN)).otherwise(F.substring(value, 1, _SHOWN))
    return Parsed(
        records.withColumn("decoded", decode(value)),
        lambda rows: rows.select("decoded.record.*", METADATA),
        malformed=decoded["problem"].isNotNull(),
        expected=f"JSON for the schema of subject {source.subject}",
        problem=decoded["problem"],
        shown=F.make_valid_utf8(text.cast("string")),
    )


def value_problems(fields: Sequence[StructField]) -> list[str]:
    return no_columns_problem(fields)


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    """The columns as one object of the sink's schema.

    A single struct named `value` is the value itself; if it is null, the record is a tombstone.
    """
    schema = required(schema, "sink.output_schema")
    text, schema_id = required(schema.text, "sink.output_schema.text"), required(schema.id, "sink.output_schema.id")
    kind, value = json_schema_types.read(text), record_column(fields)
    written = to_text(value, omit_nulls=json_schema_types.omits_nulls(kind))
    if _accepts_all(text, schema.subject, value_fields(fields)):
        return F.concat(F.lit(PREFIX.pack(MAGIC, schema_id)), F.encode(written, "utf-8"))
    return encode_udf(partial(_encoder, text, schema_id))(written)


def column_names(schema: str) -> list[str]:
    return [name for name, _ in json_schema_types.read(schema).fields]


def derivation_problems(fields: Sequence[StructField]) -> list[str]:
    return list(json_schema_types.column_problems(fields))


def derived_schema(subject: str, fields: Sequence[StructField], previous: Callable[[], str | None]) -> str:
    return require_valid(json_schema_types.of_columns(fields, name_of(subject)), fields, json_schema_types.read)


def declared_problems(schema: str, fields: Sequence[StructField]) -> list[str]:
    validator(schema)
    kind = json_schema_types.read(schema)
    json_schema_types.omits_nulls(kind)
    return list(json_schema_types.mismatches(StructType(list(fields)), kind))


def _accepts_all(schema: str, subject: str, fields: Sequence[StructField]) -> bool:
    """Whether a schema was derived from these columns and refuses no value: Spark writes NaN and Infinity as texts."""
    if derivation_problems(fields):  # an untyped null, for example
        return False
    is_derived = json_schema_types.of_columns(fields, name_of(subject)) == schema
    return is_derived and not any(_has_float(f.dataType) for f in fields)


def _has_float(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return any(_has_float(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_float(kind.elementType)
    if isinstance(kind, MapType):
        return _has_float(kind.valueType)
    return isinstance(kind, FloatType | DoubleType)


# Of a Python worker. The schemas of ids never change, so these depend on no job and no task.


@lru_cache(maxsize=8)
def _decoder(schema: str, known: Known, registry: SchemaRegistry, subject: str | None) -> Decoder:
    return Decoder(schema, finder(registry, known, TYPES[Format.JSON_SCHEMA], subject))


@lru_cache(maxsize=8)
def _encoder(schema: str, schema_id: int) -> Encoder:
    return Encoder(schema, schema_id)
