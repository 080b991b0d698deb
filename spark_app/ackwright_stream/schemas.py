"""Resolves the schemas of a pipeline in a registry when its driver starts. Tasks never register one.

From then on the jobspec has them: the reader's schema of the source, and the schema of the output with its id.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from ackwright_stream import source as reading
from ackwright_stream import transform
from ackwright_stream.errors import JobError
from ackwright_stream.formats import registered_format
from ackwright_stream.formats.base import METADATA
from ackwright_stream.formats.registered import TYPES, RegisteredFormat, Unsupported, value_fields
from ackwright_stream.jobspec import Format, JobSpec, OutputSchema, Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.schema_registry import RegistryClient
from ackwright_stream.sinks.kafka import columns

_VERSIONS = 20  # of which workers know the schemas from the start; each is one request
log = logging.getLogger(__name__)


def resolved(spark: SparkSession, job: JobSpec, *, register: bool) -> JobSpec:
    """The job with the schemas that its formats need; the same without such formats.

    register: whether the schema of the output is registered if its subject does not have it; otherwise it is only
    compared. Raises JobError for a registry that does not answer, and for schemas that do not fit.
    """
    if job.schema_registry is None:
        return job
    client = RegistryClient(job.schema_registry)
    if job.source.subject is not None:
        job = with_reader_schema(client, job)
    sink: Any = job.sink
    declared: OutputSchema | None = getattr(sink, "output_schema", None)  # a sink outside Kafka has no such field
    if declared is not None:
        output = transform.apply_transform(spark, reading.read_stream(spark, job, "earliest"), job)
        schema = _output_schema(client, declared, sink.format, columns.value_columns(output), register=register)
        job = replace(job, sink=replace(sink, output_schema=schema))
    return job


def with_reader_schema(client: RegistryClient, job: JobSpec) -> JobSpec:
    """The job with the reader's schema of its source. Raises JobError."""
    subject, format_, kind = job.source.subject or "", job.source.format, TYPES[job.source.format]
    registered = client.version(subject, job.source.schema_version)
    name = f"version {registered.version} of subject {subject} in {client.name}"
    if registered.type != kind:
        raise _incompatible(f"{name} is of type {registered.type}, and source.format is {format_}")
    if registered.references:
        raise _incompatible(f"{name} refers to other schemas, which is not supported")
    try:
        columns_of_view = registered_format(format_).column_names(registered.text)
    except Unsupported as e:
        raise _incompatible(f"{name} cannot be read: {e}") from None
    if any(column.lower() == METADATA for column in columns_of_view):
        raise _incompatible(f"{name} has a field {METADATA!r}, which is the column of the record's metadata")
    log.info("the source is read with %s (schema %d)", name, registered.id)
    source = replace(
        job.source,
        schema=registered.text,
        schema_version=registered.version,
        writer_schemas=_writer_schemas(client, subject, kind),
    )
    return replace(job, source=source)


def _writer_schemas(client: RegistryClient, subject: str, kind: str) -> dict[str, str]:
    """The subject's latest schemas by id. With them a registry that is down later affects only records of new ones."""
    latest = (client.version(subject, n) for n in client.versions(subject)[-_VERSIONS:])
    return {str(s.id): s.text for s in latest if s.type == kind and not s.references}


def _output_schema(
    client: RegistryClient, declared: OutputSchema, format_: Format, fields: Sequence[StructField], *, register: bool
) -> OutputSchema:
    subject, value = declared.subject, value_fields(fields)
    kind, of_format = TYPES[format_], registered_format(format_)
    if problems := of_format.value_problems(fields):
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    schema = (
        _declared(of_format, declared.text, value) if declared.text else _derived(client, of_format, subject, value)
    )
    schema_id = client.registered_id(subject, schema, kind)
    if schema_id is None and register:
        schema_id = client.register(subject, schema, kind)  # the registry compares it with the subject's versions
        log.info("registered schema %d of the output in subject %s", schema_id, subject)
    elif schema_id is None:
        client.require_compatible(subject, schema, kind)
        schema_id = 0  # nothing is written with it
    return OutputSchema(subject, schema, schema_id)


def _derived(client: RegistryClient, of_format: RegisteredFormat, subject: str, fields: Sequence[StructField]) -> str:
    if problems := of_format.derivation_problems(fields):
        raise JobError(Reason.INVALID_TRANSFORM, "; ".join(problems))
    return of_format.derived_schema(subject, fields, lambda: _latest(client, subject))


def _latest(client: RegistryClient, subject: str) -> str | None:
    return client.version(subject, None).text if client.versions(subject) else None


def _declared(of_format: RegisteredFormat, schema: str, fields: Sequence[StructField]) -> str:
    try:
        problems = of_format.declared_problems(schema, fields)
    except Unsupported as e:
        raise JobError(Reason.INVALID_SPEC, f"the schema of the sink cannot be used: {e}") from None
    if problems:
        raise JobError(
            Reason.INVALID_TRANSFORM, f"the output does not fit the schema of the sink: {'; '.join(problems)}"
        )
    return schema


def _incompatible(cause: str) -> JobError:
    return JobError(Reason.SCHEMA_INCOMPATIBLE, cause, REASONS[Reason.SCHEMA_INCOMPATIBLE].remedy)
