"""Format avro: a value is an Avro record in the framing of a Confluent-compatible schema registry.

Values are decoded and encoded before and after the transform: in the JVM where that is the same (avro_jvm.py), else in
Python workers, in Arrow batches. The driver resolves the schemas when it starts (schemas.py). A worker asks the
registry only for writers' schemas, which never change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ackwright_stream.formats import avro_jvm, avro_schema
from ackwright_stream.formats.avro_values import Decoder, Encoder
from ackwright_stream.formats.base import METADATA, Parsed
from ackwright_stream.formats.registered import (
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

_SHOWN = 40  # bytes of a malformed record in the message


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """The columns of the reader's schema; the key is in kafka.key.

    A record is malformed without the framing, with the id of a schema that the registry does not have, if its schema
    does not resolve to the reader's, and if bytes are missing or left over. A tombstone (value null) is well-formed,
    and its columns are null.
    """
    schema, registry = required(source.schema, "source.schema"), required(registry, "schema_registry")
    read = partial(_decoder, schema, tuple(source.writer_schemas.items()), registry, source.subject)
    decode, decoded = decode_udf(avro_schema.read(schema).spark, read), F.col("decoded")
    remaining = F.when(F.col("fast").isNull(), F.col(f"{METADATA}.value"))
    record = F.coalesce(F.col("fast"), decoded["record"]).alias("record")
    return Parsed(
        avro_jvm.decoded(records, schema, source.writer_schemas).withColumn("decoded", decode(remaining)),
        lambda rows: rows.select(record, METADATA).select("record.*", METADATA),
        malformed=decoded["problem"].isNotNull(),
        expected=f"Avro for the schema of subject {source.subject}",
        problem=decoded["problem"],
        shown=F.hex(F.substring(F.col(f"{METADATA}.value"), 1, _SHOWN)),
    )


def value_problems(fields: Sequence[StructField]) -> list[str]:
    return no_columns_problem(fields)


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    """The columns as one record of the sink's schema.

    A single struct named `value` is the value itself; if it is null, the record is a tombstone.
    """
    schema = required(schema, "sink.output_schema")
    text, schema_id = required(schema.text, "sink.output_schema.text"), required(schema.id, "sink.output_schema.id")
    value = record_column(fields)
    encoded = avro_jvm.encoded(value, value_fields(fields), text, schema_id)
    return encode_udf(partial(_encoder, text, schema_id))(value) if encoded is None else encoded


def column_names(schema: str) -> list[str]:
    return [name for name, _ in Decoder(schema, lambda _: {}).type.fields]


def derivation_problems(fields: Sequence[StructField]) -> list[str]:
    return list(avro_schema.column_problems(fields))


def derived_schema(subject: str, fields: Sequence[StructField], previous: Callable[[], str | None]) -> str:
    return require_valid(avro_schema.of_columns(fields, name_of(subject)), fields, lambda text: Encoder(text, 0))


def declared_problems(schema: str, fields: Sequence[StructField]) -> list[str]:
    return list(avro_schema.mismatches(StructType(list(fields)), Encoder(schema, 0).type))


# Of a Python worker. The schemas of ids never change, so these depend on no job and no task.


@lru_cache(maxsize=8)
def _decoder(schema: str, known: Known, registry: SchemaRegistry, subject: str | None) -> Decoder:
    return Decoder(schema, finder(registry, known, TYPES[Format.AVRO], subject))


@lru_cache(maxsize=8)
def _encoder(schema: str, schema_id: int) -> Encoder:
    return Encoder(schema, schema_id)
