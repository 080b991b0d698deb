"""The audit's own reader of a schema registry, and what it compares of records with a schema: their content.

Values of the sink are decoded by the schema that each names. Values that the transform returns again become the same
text without being encoded, so a fault of the job's encoder shows. It shares no code with the job's reader, decoder and
encoder.
"""

from __future__ import annotations

import base64
import decimal
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from ackwright_stream import source as reading
from ackwright_stream.audit_avro import Schema, Undecodable, arrow_type, decoder
from ackwright_stream.errors import JobError
from ackwright_stream.formats.base import METADATA, Parsed, column
from ackwright_stream.jobspec import JobSpec, Reason, SchemaRegistry, Source
from ackwright_stream.spark_internals.arrow import spark_schema

_MAGIC, _PREFIX = 0, 5  # bytes: 0, and the id of the schema
_TRIES_EVERY_S = 1.0
_DIGITS = decimal.Context(prec=60)


def with_reader_schema(job: JobSpec) -> JobSpec:
    """The job with the reader's schema of its source; the same for a format without one.

    Raises JobError(INVALID_SPEC) if drivers may have read with different versions: the same records then mean
    different columns, and nothing says which driver used which version.
    """
    if job.source.subject is None or job.schema_registry is None:
        return job
    subject, version = quote(job.source.subject, safe=""), job.source.schema_version
    if version is None:
        versions = _get(job.schema_registry, f"/subjects/{subject}/versions") or []
        if len(versions) > 1:
            raise JobError(
                Reason.INVALID_SPEC,
                f"subject {job.source.subject} has {len(versions)} versions and the spec does not say which one the "
                "job reads with; set source.schemaVersion to the version that the driver's log names",
            )
    answer = _get(job.schema_registry, f"/subjects/{subject}/versions/{version or 'latest'}")
    if answer is None:
        raise JobError(Reason.SCHEMA_NOT_FOUND, f"the registry has no version {version or 'latest'} of {subject}")
    return replace(job, source=replace(job.source, schema=answer["schema"]))


def parsed(raw: DataFrame, source: Source, registry: SchemaRegistry | None) -> Parsed:
    """Avro records, as formats.avro.parse() has them."""
    text, server = source.schema or "", _required(registry)
    kind = arrow_type(Schema(text))
    answer = spark_schema(pa.schema([("malformed", pa.bool_()), ("record", kind)]))

    def decode(values: pa.Array) -> pa.Array:
        records = [_record(value, server, text) for value in values.to_pylist()]
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
        expected="Avro",
    )


def with_text_values(output: DataFrame, fields: Sequence[StructField], schema: str | None) -> DataFrame:
    """The output with one column `value` in place of those that make the value, `fields`: their content as text.

    schema: as declared; None: the job derives one that holds everything.
    """
    single = len(fields) == 1 and fields[0].name.lower() == "value" and isinstance(fields[0].dataType, StructType)
    record = column(fields[0]) if single else F.struct(*(column(f) for f in fields))
    others = [column(f) for f in output.schema.fields if f not in fields]
    return output.select(*others, _text_of_columns(schema)(record).alias("value"))


def with_decoded_values(records: DataFrame, registry: SchemaRegistry | None) -> DataFrame:
    """The sink's records with the content of their values as text; bytes that are no record stay bytes."""
    server = _required(registry)

    def decode(values: pa.Array) -> pa.Array:
        return pa.array([_text_of_bytes(value, server) for value in values.to_pylist()], pa.binary())

    return records.withColumn("value", F.arrow_udf(decode, "binary")(F.col("value")))


class _Malformed:
    """Stands for a record that cannot be decoded."""


def _record(value: bytes | None, registry: SchemaRegistry, reader: str | None) -> Any:
    """The record of a value, by its own schema if reader is None; None for no value."""
    if value is None:
        return None
    if len(value) < _PREFIX or value[0] != _MAGIC:
        return _Malformed()
    decode = _decoder(registry, int.from_bytes(value[1:_PREFIX], "big"), reader)
    if decode is None:
        return _Malformed()
    try:
        return decode(value, _PREFIX)
    except Undecodable:
        return _Malformed()


@lru_cache(maxsize=512)
def _decoder(registry: SchemaRegistry, schema_id: int, reader: str | None) -> Callable[[bytes, int], Any] | None:
    """None: the registry has no such schema, or it does not resolve to the reader's."""
    answer = _get(registry, f"/schemas/ids/{schema_id}")
    if answer is None or answer.get("schemaType", "AVRO") != "AVRO":
        return None
    writer = Schema(answer["schema"])
    try:
        return decoder(writer, writer if reader is None else Schema(reader))
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


# ------------------------------------------------ content as text


def _text_of_bytes(value: bytes | None, registry: SchemaRegistry) -> bytes | None:
    record = _record(value, registry, None)
    if record is None or value is None:
        return None
    return value if isinstance(record, _Malformed) else _text(record)


def _text_of_columns(schema: str | None) -> Callable[..., Column]:
    """schema: as declared; None: the job derives one that holds everything."""

    def convert(records: pa.Array) -> pa.Array:
        described = Schema(schema) if schema else None
        rows = _values(records)
        if described is not None:
            rows = [_as_written(row, described, described.top) for row in rows]
        return pa.array([None if row is None else _text(row) for row in rows], pa.binary())

    return F.arrow_udf(convert, "binary")  # type: ignore[no-any-return]


def _text(record: Any) -> bytes:
    return json.dumps(_plain(record), sort_keys=True, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, list):
        pairs = bool(value) and isinstance(value[0], tuple)
        return {key: _plain(v) for key, v in value} if pairs else [_plain(v) for v in value]
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value.normalize(_DIGITS))}
    if isinstance(value, float):
        return {"float": repr(value)}
    return value


def _values(array: pa.Array) -> list[Any]:
    """A column's values: times as numbers, maps as lists of pairs."""
    kind = array.type
    if pa.types.is_struct(kind):
        names = [f.name for f in kind]
        rows: list[Any] = [
            dict(zip(names, row, strict=True)) for row in zip(*map(_values, array.flatten()), strict=True)
        ]
    elif pa.types.is_map(kind):
        keys, items, ends = array.keys.to_pylist(), _values(array.items), array.offsets.to_pylist()
        rows = [list(zip(keys[a:b], items[a:b], strict=True)) for a, b in pairwise(ends)]
    elif pa.types.is_list(kind):
        items, ends = _values(array.values), array.offsets.to_pylist()
        rows = [items[a:b] for a, b in pairwise(ends)]
    elif pa.types.is_timestamp(kind):
        return array.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    elif pa.types.is_date(kind):
        return array.cast(pa.date32()).cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    else:
        return array.to_pylist()  # type: ignore[no-any-return]
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _as_written(value: Any, schema: Schema, node: Any) -> Any:
    """A value of the output as the declared schema holds it: timestamp-millis has no microseconds."""
    node = schema.at(node)
    if isinstance(node, list):
        node = schema.at(next(n for n in node if schema.at(n).get("type") != "null"))
    if value is None:
        return None
    if node["type"] == "record":
        kinds = {f["name"]: f["type"] for f in node["fields"]}
        return {name: _as_written(v, schema, kinds[name]) for name, v in value.items()}
    if node["type"] == "array":
        return [_as_written(v, schema, node["items"]) for v in value]
    if node["type"] == "map":
        return [(k, _as_written(v, schema, node["values"])) for k, v in value]
    if str(node.get("logicalType", "")).endswith("timestamp-millis"):
        return value // 1000 * 1000
    return value


# ------------------------------------------------ the registry


def _get(registry: SchemaRegistry, path: str) -> Any:
    """The answer of the registry; None if it says that there is none. Raises JobError."""
    deadline = time.monotonic() + registry.timeout_ms / 1000
    while True:
        try:
            request = urllib.request.Request(registry.url.rstrip("/") + path, headers=_login(registry))  # noqa: S310
            with _opener(registry.ca).open(request, timeout=registry.timeout_ms / 1000) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as e:
            problem = f"HTTP status {e.code}"
            if e.code == 404 and b'"error_code"' in e.read():
                return None
            if e.code in (401, 403):
                raise _failed(Reason.REGISTRY_LOGIN_REFUSED, registry, problem) from None
        except (OSError, ValueError) as e:
            problem = str(e)
        if time.monotonic() + _TRIES_EVERY_S > deadline:
            raise _failed(Reason.REGISTRY_UNREACHABLE, registry, problem)
        time.sleep(_TRIES_EVERY_S)


def _failed(reason: Reason, registry: SchemaRegistry, problem: str) -> JobError:
    return JobError(reason, f"the audit cannot read the schema registry {registry.url}: {problem}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The login would go with a redirect to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(ca: str | None) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=ca)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def _login(registry: SchemaRegistry) -> dict[str, str]:
    if registry.credentials is None:
        return {}
    user, password = (Path(registry.credentials, name).read_bytes() for name in ("username", "password"))
    return {"Authorization": f"Basic {base64.b64encode(user + b':' + password).decode()}"}


def _required(registry: SchemaRegistry | None) -> SchemaRegistry:
    if registry is None:
        raise JobError(Reason.UNEXPECTED, "the jobspec has no schema registry, and its format needs one; report this")
    return registry
