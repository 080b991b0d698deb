"""Format avro: a value is an Avro record in the framing of a Confluent-compatible schema registry.

Values are decoded and encoded before and after the transform: in the JVM where that is the same (avro_jvm.py), else in
Python workers, in Arrow batches. The driver resolves the schemas when it starts (schemas.py). A worker asks the
registry only for writers' schemas, which never change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.formats import avro_jvm, avro_schema
from ackwright_stream.formats.avro_schema import Unsupported
from ackwright_stream.formats.avro_values import Decoder, Encoder
from ackwright_stream.formats.base import METADATA, Parsed, column
from ackwright_stream.jobspec import OutputSchema, Reason, SchemaRegistry, Source
from ackwright_stream.reasons import REASONS
from ackwright_stream.schema_registry import RegistryClient

T = TypeVar("T")
Known = tuple[tuple[str, str], ...]  # schemas by id

# A producer registers a schema just before its first record, and the replica of a registry may follow it later.
_LOOKUPS, _BETWEEN_LOOKUPS_S = 4, 0.5
_SHOWN = 40  # bytes of a malformed record in the message


def parse(records: DataFrame, source: Source, registry: SchemaRegistry | None = None) -> Parsed:
    """The columns of the reader's schema; the key is in kafka.key.

    A record is malformed without the framing, with the id of a schema that the registry does not have, if its schema
    does not resolve to the reader's, and if bytes are missing or left over. A tombstone (value null) is well-formed,
    and its columns are null.
    """
    schema, registry = _required(source.schema, "source.schema"), _required(registry, "schema_registry")
    decode, decoded = _decode(schema, tuple(source.writer_schemas.items()), registry), F.col("decoded")
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
    if not fields:
        return ["the transform lacks columns for the value; select at least one besides key, topic and headers"]
    return []


def to_value(fields: Sequence[StructField], schema: OutputSchema | None = None) -> Column:
    """The columns as one record of the sink's schema.

    A single struct named `value` is the value itself; if it is null, the record is a tombstone.
    """
    schema = _required(schema, "sink.output_schema")
    text, schema_id = _required(schema.text, "sink.output_schema.text"), _required(schema.id, "sink.output_schema.id")
    value = _value(fields)
    encoded = avro_jvm.encoded(value, value_fields(fields), text, schema_id)
    return _encode(text, schema_id)(value) if encoded is None else encoded


def value_fields(fields: Sequence[StructField]) -> Sequence[StructField]:
    """The fields of the record that to_value() writes."""
    single = is_single_struct(fields)
    return fields[0].dataType.fields if single else fields


def is_single_struct(fields: Sequence[StructField]) -> bool:
    """Whether the columns are a single struct named `value`, which is the value itself."""
    return len(fields) == 1 and fields[0].name.lower() == "value" and isinstance(fields[0].dataType, StructType)


def _value(fields: Sequence[StructField]) -> Column:
    return column(fields[0]) if is_single_struct(fields) else F.struct(*(column(f) for f in fields))


def _decode(schema: str, known: Known, registry: SchemaRegistry) -> Callable[[Column], Column]:
    kind = avro_schema.read(schema)
    answer = StructType([StructField("problem", StringType()), StructField("record", kind.spark)])

    def decode(values: pa.Array) -> pa.Array:
        records, problems = _decoder(schema, known, registry).decode(values)
        return pa.StructArray.from_arrays([pa.array(problems, pa.string()), records], names=["problem", "record"])

    return F.arrow_udf(decode, answer)  # type: ignore[no-any-return]


def _encode(schema: str, schema_id: int) -> Callable[[Column], Column]:
    def encode(records: pa.Array) -> pa.Array:
        try:
            return _encoder(schema, schema_id).encode(records)
        except ValueError as e:
            text = f"the sink's schema refuses a record of the transform: {e}; change the transform or the schema"
            raise JobError(Reason.MALFORMED_RECORD, text) from None

    return F.arrow_udf(encode, "binary")  # type: ignore[no-any-return]


# Of a Python worker. The schemas of ids never change, so these depend on no job and no task.


@lru_cache(maxsize=8)
def _decoder(schema: str, known: Known, registry: SchemaRegistry) -> Decoder:
    client, texts = RegistryClient(registry), {int(schema_id): text for schema_id, text in known}
    return Decoder(schema, lambda schema_id: texts.get(schema_id) or find_schema(client, schema_id))


@lru_cache(maxsize=8)
def _encoder(schema: str, schema_id: int) -> Encoder:
    return Encoder(schema, schema_id)


def find_schema(client: RegistryClient, schema_id: int, pause: Callable[[float], object] = time.sleep) -> str | None:
    """The Avro schema with an id; None if there is none, also a moment later.

    Raises JobError if the registry does not answer, and for a schema that this release cannot read although it may be
    well-formed.
    """
    schema = client.by_id(schema_id)
    for _ in range(_LOOKUPS - 1):
        if schema is not None:
            break
        pause(_BETWEEN_LOOKUPS_S)
        schema = client.by_id(schema_id)
    if schema is None:
        return None
    if schema.references:
        reason = Reason.SCHEMA_INCOMPATIBLE
        raise JobError(
            reason,
            f"schema {schema_id} in {client.name} refers to other schemas, which is not supported",
            REASONS[reason].remedy,
        )
    if schema.type != "AVRO":
        raise Unsupported(f"it is of type {schema.type}, not AVRO")
    return schema.text


def _required(value: T | None, name: str) -> T:
    if value is None:
        raise JobError(Reason.UNEXPECTED, f"the driver has not resolved {name} of the jobspec; report this")
    return value
