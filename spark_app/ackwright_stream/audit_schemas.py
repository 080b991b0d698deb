"""What the audit compares of records whose schemas are in a registry: their content.

Values of the sink are decoded by the schema that each names. Values that the transform returns again become the same
text without being encoded, so a fault of the job's encoder shows. It shares no code with the job's reader, decoder and
encoder; each format is a separate module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ackwright_stream import audit_avro, audit_json_schema, audit_protobuf
from ackwright_stream import source as reading
from ackwright_stream.audit_registry import get, required
from ackwright_stream.audit_values import Undecodable
from ackwright_stream.errors import JobError
from ackwright_stream.formats.base import METADATA, Parsed, column
from ackwright_stream.jobspec import Format, JobSpec, Reason, SchemaRegistry, Source
from ackwright_stream.spark_internals.arrow import spark_schema

_MAGIC, _PREFIX = 0, 5  # bytes: 0, and the id of the schema


class _Audited(Protocol):
    """A module of a format."""

    TYPE: str  # of its schemas in the registry

    def column_type(self, schema: str) -> pa.DataType:
        """The columns of a reader's schema, as a struct."""
        ...

    def decoder(self, writer: str, reader: str | None) -> Callable[[bytes, int], Any]:
        """A function that decodes a record from bytes at a position to their end. Both raise Undecodable.

        reader: the schema whose columns the record is for; None: as its writer's.
        """
        ...

    def text(self, record: Any) -> bytes:
        """The content of a record that was decoded for no reader."""
        ...

    def text_of_columns(self, record: Column, kind: StructType, schema: str | None) -> Column:
        """The content of a column of records, as text() has it. schema: as declared; None: the job derives it."""
        ...


_FORMATS: Mapping[Format, _Audited] = {
    Format.AVRO: audit_avro,
    Format.JSON_SCHEMA: audit_json_schema,
    Format.PROTOBUF: audit_protobuf,
}


def with_reader_schema(job: JobSpec) -> JobSpec:
    """The job with the reader's schema of its source; the same for a format without one.

    Raises JobError(INVALID_SPEC) if drivers may have read with different versions: the same records then mean
    different columns, and nothing says which driver used which version.
    """
    if job.source.subject is None or job.schema_registry is None:
        return job
    subject, version = quote(job.source.subject, safe=""), job.source.schema_version
    if version is None:
        versions = get(job.schema_registry, f"/subjects/{subject}/versions") or []
        if len(versions) > 1:
            raise JobError(
                Reason.INVALID_SPEC,
                f"subject {job.source.subject} has {len(versions)} versions and the spec does not say which one the "
                "job reads with; set source.schemaVersion to the version that the driver's log names",
            )
    answer = get(job.schema_registry, f"/subjects/{subject}/versions/{version or 'latest'}")
    if answer is None:
        raise JobError(Reason.SCHEMA_NOT_FOUND, f"the registry has no version {version or 'latest'} of {subject}")
    return replace(job, source=replace(job.source, schema=answer["schema"]))


def parsed(raw: DataFrame, source: Source, registry: SchemaRegistry | None) -> Parsed:
    """The records of the source, as the parse() of their format has them."""
    text, server, format_ = source.schema or "", required(registry), source.format
    kind = _FORMATS[format_].column_type(text)
    answer = spark_schema(pa.schema([("malformed", pa.bool_()), ("record", kind)]))

    def decode(values: pa.Array) -> pa.Array:
        records = [_record(value, server, format_, text, source.subject) for value in values.to_pylist()]
        malformed = pa.array([isinstance(r, _Malformed) for r in records], pa.bool_())
        fitting, bad = _fitting([None if isinstance(r, _Malformed) else r for r in records], kind)
        return pa.StructArray.from_arrays(
            [pa.array([a or b for a, b in zip(malformed.to_pylist(), bad, strict=True)]), fitting],
            names=["malformed", "record"],
        )

    decoded = F.arrow_udf(decode, answer)(F.col(f"{METADATA}.value"))
    return Parsed(
        reading.with_metadata(raw).select(METADATA, decoded.alias("decoded")),
        lambda rows: rows.select("decoded.record.*", METADATA),
        malformed=F.col("decoded.malformed"),
        expected="a record of its schema",
    )


def with_text_values(
    output: DataFrame, fields: Sequence[StructField], format_: Format, declared: str | None
) -> DataFrame:
    """The output with one column `value` in place of those that make the value, `fields`: their content as text.

    format_: of the sink. declared: its schema; None: the job derives one that holds everything.
    """
    single = len(fields) == 1 and fields[0].name.lower() == "value" and isinstance(fields[0].dataType, StructType)
    record = column(fields[0]) if single else F.struct(*(column(f) for f in fields))
    kind = fields[0].dataType if single else StructType(list(fields))
    others = [column(f) for f in output.schema.fields if f not in fields]
    return output.select(*others, _FORMATS[format_].text_of_columns(record, kind, declared).alias("value"))


def with_decoded_values(
    records: DataFrame, format_: Format, registry: SchemaRegistry | None, subject: str | None = None
) -> DataFrame:
    """The sink's records with the content of their values as text; bytes that are no record stay bytes.

    subject: of the schema of the output; its context has the ids.
    """
    server = required(registry)

    def decode(values: pa.Array) -> pa.Array:
        return pa.array([_text_of_bytes(value, server, format_, subject) for value in values.to_pylist()], pa.binary())

    return records.withColumn("value", F.arrow_udf(decode, "binary")(F.col("value")))


class _Malformed:
    """Stands for a record that cannot be decoded."""


def _text_of_bytes(value: bytes | None, registry: SchemaRegistry, format_: Format, subject: str | None) -> bytes | None:
    record = _record(value, registry, format_, None, subject)
    if record is None or value is None:
        return None
    return value if isinstance(record, _Malformed) else _FORMATS[format_].text(record)


def _record(
    value: bytes | None, registry: SchemaRegistry, format_: Format, reader: str | None, subject: str | None
) -> Any:
    """The record of a value, by its own schema if reader is None; None for no value."""
    if value is None:
        return None
    if len(value) < _PREFIX or value[0] != _MAGIC:
        return _Malformed()
    decode = _decoder(registry, int.from_bytes(value[1:_PREFIX], "big"), format_, reader, subject)
    if decode is None:
        return _Malformed()
    try:
        return decode(value, _PREFIX)
    except Undecodable:
        return _Malformed()


@lru_cache(maxsize=512)
def _decoder(
    registry: SchemaRegistry, schema_id: int, format_: Format, reader: str | None, subject: str | None
) -> Callable[[bytes, int], Any] | None:
    """None: the registry has no such schema, or it does not resolve to the reader's."""
    in_context = f"?subject={quote(subject, safe='')}" if subject and subject.startswith(":.") else ""
    answer = get(registry, f"/schemas/ids/{schema_id}{in_context}")
    if answer is None or answer.get("schemaType", "AVRO") != _FORMATS[format_].TYPE:
        return None
    try:
        return _FORMATS[format_].decoder(answer["schema"], reader)
    except Undecodable:
        return None


def _fitting(records: list[Any], kind: pa.DataType) -> tuple[pa.Array, list[bool]]:
    """The records as a column, and which of them do not fit it."""
    try:
        return pa.array(records, kind), [False] * len(records)
    except (pa.ArrowException, OverflowError, ValueError):
        bad = []
        for i, record in enumerate(records):
            try:
                pa.array([record], kind)
                bad.append(False)
            except (pa.ArrowException, OverflowError, ValueError):
                records[i] = None
                bad.append(True)
        return pa.array(records, kind), bad
