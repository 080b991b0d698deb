"""Format protobuf: a value is a Protobuf message in the framing of a Confluent-compatible schema registry.

Values are decoded and encoded by Python workers, in Arrow batches, before and after the transform. The message of a
schema is the first one of its file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ackwright_stream.formats import protobuf_text, protobuf_types
from ackwright_stream.formats.base import METADATA, Parsed
from ackwright_stream.formats.protobuf_types import ProtoType
from ackwright_stream.formats.protobuf_values import Decoder, Encoder
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
)
from ackwright_stream.jobspec import Format, OutputSchema, SchemaRegistry, Source

_SHOWN = 40  # bytes of a malformed record in the message


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """The columns of the reader's schema; the key is in kafka.key.

    A record is malformed without the framing, with the id of a schema that the registry does not have, if it is another
    message than the reader's, and if its bytes are none of that message. A tombstone (value null) is well-formed, and
    its columns are null.
    """
    schema, registry = required(source.schema, "source.schema"), required(registry, "schema_registry")
    read = partial(_decoder, schema, tuple(source.writer_schemas.items()), registry, source.subject)
    value, decoded = F.col(f"{METADATA}.value"), F.col("decoded")
    return Parsed(
        records.withColumn("decoded", decode_udf(_type(schema).spark, read)(value)),
        lambda rows: rows.select("decoded.record.*", METADATA),
        malformed=decoded["problem"].isNotNull(),
        expected=f"Protobuf for the schema of subject {source.subject}",
        problem=decoded["problem"],
        shown=F.hex(F.substring(value, 1, _SHOWN)),
    )


def value_problems(fields: Sequence[StructField]) -> list[str]:
    return no_columns_problem(fields)


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    """The columns as one message of the sink's schema.

    A single struct named `value` is the value itself; if it is null, the record is a tombstone.
    """
    schema = required(schema, "sink.output_schema")
    text, schema_id = required(schema.text, "sink.output_schema.text"), required(schema.id, "sink.output_schema.id")
    return encode_udf(partial(_encoder, text, schema_id))(record_column(fields))


def column_names(schema: str) -> list[str]:
    return [name for name, _ in _type(schema).fields]


def derivation_problems(fields: Sequence[StructField]) -> list[str]:
    return list(protobuf_types.column_problems(fields))


def derived_schema(subject: str, fields: Sequence[StructField], previous: Callable[[], str | None]) -> str:
    return require_valid(protobuf_types.of_columns(fields, name_of(subject), previous()), fields, _type)


def declared_problems(schema: str, fields: Sequence[StructField]) -> list[str]:
    return list(protobuf_types.mismatches(StructType(list(fields)), _type(schema)))


def _type(schema: str) -> ProtoType:
    return protobuf_types.read(protobuf_text.first_message(protobuf_text.file_of(schema)))


# Of a Python worker. The schemas of ids never change, so these depend on no job and no task.


@lru_cache(maxsize=8)
def _decoder(schema: str, known: Known, registry: SchemaRegistry, subject: str | None) -> Decoder:
    return Decoder(schema, finder(registry, known, TYPES[Format.PROTOBUF], subject))


@lru_cache(maxsize=8)
def _encoder(schema: str, schema_id: int) -> Encoder:
    return Encoder(schema, schema_id)
