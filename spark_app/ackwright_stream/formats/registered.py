"""What the formats share whose schemas are in a registry: the framing of values, and the schemas that ids name.

A value is a zero byte, the id of its schema in four bytes, and what that schema describes.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.formats.base import RecordFormat, column
from ackwright_stream.jobspec import Format, Reason, SchemaRegistry
from ackwright_stream.reasons import REASONS
from ackwright_stream.schema_registry import RegistryClient

T = TypeVar("T")
Known = tuple[tuple[str, str], ...]  # schemas by id
Find = Callable[[int], str | None]  # the schema with an id; None: there is none. Raises Unsupported, JobError

MAGIC, PREFIX = 0, struct.Struct(">bI")
# How the registry names the kinds of schemas.
TYPES = {Format.AVRO: "AVRO", Format.JSON_SCHEMA: "JSON", Format.PROTOBUF: "PROTOBUF"}
# A producer registers a schema just before its first record, and the replica of a registry may follow it later.
_LOOKUPS, _BETWEEN_LOOKUPS_S = 4, 0.5


class Unsupported(ValueError):
    """A schema that this release cannot read or write, in a sentence."""


def id_of(value: bytes) -> int | str:
    """The id of a value's schema; else why it has none, in a clause."""
    if len(value) < PREFIX.size:
        return f"it has {len(value)} bytes and no schema id"
    magic, schema_id = PREFIX.unpack_from(value)
    return f"its first byte is {value[0]} and not {MAGIC}" if magic != MAGIC else int(schema_id)


def decoded_each(
    values: pa.Array, decode: Callable[[bytes], tuple[T | None, str | None]]
) -> tuple[list[T | None], list[str | None]]:
    """The record of each value, and what is wrong with it. A null value is a null record."""
    answers = [(None, None) if value is None else decode(value) for value in values.to_pylist()]
    return [record for record, _ in answers], [problem for _, problem in answers]


def finder(registry: SchemaRegistry, known: Known, kind: str) -> Find:
    """Finds the schemas of a worker: the known ones, and those of the registry."""
    client, texts = RegistryClient(registry), {int(schema_id): text for schema_id, text in known}
    return lambda schema_id: texts.get(schema_id) or find_schema(client, schema_id, kind)


def find_schema(
    client: RegistryClient, schema_id: int, kind: str, pause: Callable[[float], object] = time.sleep
) -> str | None:
    """The schema with an id; None if there is none, also a moment later.

    kind: of TYPES. Raises JobError if the registry does not answer, and for a schema that this release cannot read
    although it may be well-formed; Unsupported for one of another kind.
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
    if schema.type != kind:
        raise Unsupported(f"it is of type {schema.type}, not {kind}")
    return schema.text


class RegisteredFormat(RecordFormat, Protocol):
    """A module of a format whose schemas are in a registry: what the driver asks it when it resolves them."""

    def column_names(self, schema: str) -> list[str]:
        """The columns that values are read into with this reader's schema. Raises Unsupported."""
        ...

    def derivation_problems(self, fields: Sequence[StructField]) -> list[str]:
        """Why a schema cannot be derived from the columns of a value."""
        ...

    def derived_schema(self, subject: str, fields: Sequence[StructField], previous: Callable[[], str | None]) -> str:
        """The schema of values with these columns, which have no derivation_problems().

        previous: returns the latest schema of the subject; None: there is none.
        """
        ...

    def declared_problems(self, schema: str, fields: Sequence[StructField]) -> list[str]:
        """Why values with these columns do not fit a declared schema. Raises Unsupported."""
        ...


class Decoder(Protocol):
    """Decodes records of any writer's schema into the columns of one reader's schema."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[str | None]]:
        """The records, and for each what is wrong with it. A null value is a null record."""
        ...


class Encoder(Protocol):
    """Writes values of one schema."""

    def encode(self, records: pa.Array) -> pa.Array:
        """The values; a null record is a null value. Raises ValueError for a record that the schema refuses."""
        ...


def decode_udf(record: DataType, decoder: Callable[[], Decoder]) -> Callable[[Column], Column]:
    """A function from values to a struct of `problem` and `record`. decoder: called for each batch of a worker."""

    def decode(values: pa.Array) -> pa.Array:
        records, problems = decoder().decode(values)
        return pa.StructArray.from_arrays([pa.array(problems, pa.string()), records], names=["problem", "record"])

    answer = StructType([StructField("problem", StringType()), StructField("record", record)])
    return F.arrow_udf(decode, answer)  # type: ignore[no-any-return]


def encode_udf(encoder: Callable[[], Encoder]) -> Callable[[Column], Column]:
    """A function from records, or what an encoder takes in place of them, to values."""

    def encode(records: pa.Array) -> pa.Array:
        try:
            return encoder().encode(records)
        except ValueError as e:
            text = f"the sink's schema refuses a record of the transform: {e}; change the transform or the schema"
            raise JobError(Reason.MALFORMED_RECORD, text) from None

    return F.arrow_udf(encode, "binary")  # type: ignore[no-any-return]


def value_fields(fields: Sequence[StructField]) -> Sequence[StructField]:
    """The fields of the record that columns of an output make."""
    return fields[0].dataType.fields if is_single_struct(fields) else fields


def is_single_struct(fields: Sequence[StructField]) -> bool:
    """Whether the columns are a single struct named `value`, which is the value itself."""
    return len(fields) == 1 and fields[0].name.lower() == "value" and isinstance(fields[0].dataType, StructType)


def record_column(fields: Sequence[StructField]) -> Column:
    """The columns of an output as one record, which is null for a tombstone."""
    return column(fields[0]) if is_single_struct(fields) else F.struct(*(column(f) for f in fields))


def name_of(subject: str) -> str:
    """A name for the schema of a subject, the same for as long as the subject is: letters, digits and '_'."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", subject.removesuffix("-value"))
    return name if re.match("[A-Za-z_]", name) else f"_{name}"


def no_columns_problem(fields: Sequence[StructField]) -> list[str]:
    """That an output has columns for a value."""
    if fields:
        return []
    return ["the transform lacks columns for the value; select at least one besides key, topic and headers"]


def required(value: T | None, name: str) -> T:
    """A value that the driver has resolved. name: of its field in the jobspec."""
    if value is None:
        raise JobError(Reason.UNEXPECTED, f"the driver has not resolved {name} of the jobspec; report this")
    return value
