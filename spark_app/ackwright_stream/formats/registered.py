"""What the formats share whose schemas are in a registry: the framing of values, and the schemas that ids name.

A value is a zero byte, the id of its schema in four bytes, and what that schema describes.
https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.formats.base import RecordFormat, column
from ackwright_stream.jobspec import Format, Reason, SchemaRegistry
from ackwright_stream.reasons import REASONS
from ackwright_stream.schema_registry import RegistryClient, Schema

T = TypeVar("T")
W = TypeVar("W")
Known = tuple[tuple[str, str], ...]  # schemas by id

MAGIC, PREFIX = 0, struct.Struct(">bI")
# How the registry names the kinds of schemas.
TYPES = {Format.AVRO: "AVRO", Format.JSON_SCHEMA: "JSON", Format.PROTOBUF: "PROTOBUF"}
# A producer registers a schema just before its first record, and the replica of a registry may follow it later.
_LOOKUPS, _BETWEEN_LOOKUPS_S = 4, 0.5
_REPEATED = 10  # ids that are absent, which a lookup before the last one asks for


class Unsupported(ValueError):
    """A schema that this release cannot read or write, in a sentence."""


# From ids to their schemas, without the ids that have none. Raises JobError.
Find = Callable[[Sequence[int]], Mapping[int, str | Unsupported]]


def id_of(value: bytes) -> int | str:
    """The id of a value's schema; else why it has none, in a clause."""
    if len(value) < PREFIX.size:
        return f"it has {len(value)} bytes and no schema id"
    magic, schema_id = PREFIX.unpack_from(value)
    return f"its first byte is {value[0]} and not {MAGIC}" if magic != MAGIC else int(schema_id)


class Writers(Generic[W]):
    """The writers' schemas of a decoder, each in the form that decodes its records."""

    def __init__(self, find: Find, read: Callable[[str], W]) -> None:
        """read: from a schema to that form. Raises Unsupported."""
        self._find, self._read = find, read
        self._readable: dict[int, W] = {}

    def by_id(self, ids: Iterable[int]) -> Mapping[int, W | Unsupported]:
        """The schemas with these ids, or why their records cannot be read, in a clause.

        One that could not be read before is requested again: it may have been registered. Raises JobError.
        """
        unknown = sorted(set(ids) - self._readable.keys())
        schemas = self._find(unknown) if unknown else {}
        unreadable: dict[int, Unsupported] = {}
        for schema_id in unknown:
            try:
                self._readable[schema_id] = self._read_schema(schema_id, schemas.get(schema_id))
            except Unsupported as e:
                unreadable[schema_id] = e
        return {**self._readable, **unreadable}

    def _read_schema(self, schema_id: int, schema: str | Unsupported | None) -> W:
        if schema is None:
            raise Unsupported(f"the registry has no schema {schema_id}")
        try:
            if isinstance(schema, Unsupported):
                raise schema
            return self._read(schema)
        except Unsupported as e:
            raise Unsupported(f"its schema {schema_id} cannot be used: {e}") from None


def decoded_each(
    values: pa.Array, writers: Writers[W], decode: Callable[[bytes, int, W], tuple[T | None, str | None]]
) -> tuple[list[T | None], list[str | None]]:
    """The record of each value, and what is wrong with it. A null value is a null record.

    decode: from a value, the id of its schema and the schema to both.
    """
    framed = [(value, None if value is None else id_of(value)) for value in values.to_pylist()]
    schemas = writers.by_id(schema_id for _, schema_id in framed if isinstance(schema_id, int))

    def decoded(value: bytes, schema_id: int | str | None) -> tuple[T | None, str | None]:
        if schema_id is None or isinstance(schema_id, str):
            return None, schema_id
        schema = schemas[schema_id]
        return (None, str(schema)) if isinstance(schema, Unsupported) else decode(value, schema_id, schema)

    answers = [decoded(value, schema_id) for value, schema_id in framed]
    return [record for record, _ in answers], [problem for _, problem in answers]


def finder(registry: SchemaRegistry, known: Known, kind: str, subject: str | None) -> Find:
    """What returns the schemas of a worker: the known ones, and those of the registry.

    subject: of the reader's schema; its context has the ids.
    """
    client, texts = RegistryClient(registry), {int(schema_id): text for schema_id, text in known}

    def find(ids: Sequence[int]) -> dict[int, str | Unsupported]:
        others = [schema_id for schema_id in ids if schema_id not in texts]
        of_registry = registered_schemas(client, others, kind, subject)
        return {**of_registry, **{schema_id: texts[schema_id] for schema_id in ids if schema_id in texts}}

    return find


def registered_schemas(
    client: RegistryClient,
    ids: Sequence[int],
    kind: str,
    subject: str | None = None,
    pause: Callable[[float], object] = time.sleep,
) -> dict[int, str | Unsupported]:
    """The schemas with these ids, without the ids that have none, also a moment later; Unsupported for another kind.

    Bytes that are no records may have many ids. All of them wait together, and most are requested only at the end.
    kind: of TYPES. Raises JobError if the registry does not answer, and for a schema that this release cannot read
    although it may be well-formed.
    """
    schemas: dict[int, Schema] = {}
    for lookup in range(1, _LOOKUPS + 1):
        absent = 0
        for schema_id in (i for i in ids if i not in schemas):
            if absent == _REPEATED and lookup < _LOOKUPS:
                break
            schema = client.by_id(schema_id, subject)
            if schema is None:
                absent += 1
            else:
                schemas[schema_id] = schema
        if not absent or lookup == _LOOKUPS:
            break
        pause(_BETWEEN_LOOKUPS_S)
    return {schema_id: _text_or_reason(client, schema, kind) for schema_id, schema in schemas.items()}


def _text_or_reason(client: RegistryClient, schema: Schema, kind: str) -> str | Unsupported:
    if schema.references:
        reason = Reason.SCHEMA_INCOMPATIBLE
        raise JobError(
            reason,
            f"schema {schema.id} in {client.name} refers to other schemas, which is not supported",
            REASONS[reason].remedy,
        )
    return schema.text if schema.type == kind else Unsupported(f"it is of type {schema.type}, not {kind}")


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


def require_valid(schema: str, fields: Sequence[StructField], read: Callable[[str], object]) -> str:
    """A schema that was derived from columns. Raises JobError(INVALID_TRANSFORM) if it cannot be used.

    read: reads a schema. Raises Unsupported.
    """
    try:
        read(schema)
    except Unsupported as e:
        text = (
            f"no schema can be derived from the columns {', '.join(f.name for f in fields)}: {e}; "
            "rename columns with AS, or declare the schema of the sink"
        )
        raise JobError(Reason.INVALID_TRANSFORM, text) from None
    return schema


def required(value: T | None, name: str) -> T:
    """A value that the driver has resolved. name: of its field in the jobspec."""
    if value is None:
        raise JobError(Reason.UNEXPECTED, f"the driver has not resolved {name} of the jobspec; report this")
    return value
