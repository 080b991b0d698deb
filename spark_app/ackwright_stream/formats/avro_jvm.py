"""Avro in the JVM, by Spark's own module: much faster than in Python workers, which remain for everything else.

It is used only where it reads and writes exactly as avro_values.py does. What it cannot read is decoded there again,
which also says why a record is malformed.

Spark's from_avro() returns nulls for a record that it cannot read, and ignores bytes that are left over. So a fixed
field is added at the end of both schemas, and its value behind each record: only a record that ends where its schema
says is followed by that value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro
from pyspark.sql.types import DecimalType, StructField

from ackwright_stream.formats import avro_schema
from ackwright_stream.formats.avro_resolution import misread_field, parsed, store_defaults
from ackwright_stream.formats.avro_schema import LONGEST_DECIMAL, NAMED, AvroType
from ackwright_stream.formats.base import METADATA
from ackwright_stream.formats.registered import MAGIC, PREFIX, Unsupported

log = logging.getLogger(__name__)

_END, _END_NAME = bytes.fromhex("9d1c60f2b7a84e35"), "ackwright_end"
_END_FIELD = {"name": _END_NAME, "type": {"type": "fixed", "name": "End", "namespace": "ackwright", "size": len(_END)}}
_PERMISSIVE = {"mode": "PERMISSIVE", "datetimeRebaseMode": "CORRECTED"}
# Spark cuts a longer number down to 64 bits if its column has at most so many digits, and does not report it.
_DIGITS_OF_LONG = 18


def decoded(records: DataFrame, schema: str, writers: Mapping[str, str]) -> DataFrame:
    """The records with a column `fast`: the value in the columns of the reader's schema.

    It is null for what has to be decoded in Python: a record of another writer, a malformed one, a tombstone.
    writers: schemas by id, the latest last.
    """
    kind, value = avro_schema.read(schema), F.col(f"{METADATA}.value")
    reader = _wide(avro_schema.load(schema))
    wide = avro_schema.read(json.dumps(reader))
    datum = F.concat(F.substring(value, PREFIX.size + 1, 2**31 - 1), F.lit(_END))
    raw: Column | None = None
    for schema_id, text in reversed(list(writers.items())):
        if _reads_alike(text, schema):
            options = {**_PERMISSIVE, "avroSchema": _with_end(reader)}
            record = from_avro(datum, _with_end(avro_schema.load(text)), options)
            is_of_writer = F.substring(value, 1, PREFIX.size) == F.lit(PREFIX.pack(MAGIC, int(schema_id)))
            raw = F.when(is_of_writer, record) if raw is None else raw.when(is_of_writer, record)
    if raw is not None:
        try:
            rows = records.select(METADATA, raw.alias("raw")).select(METADATA, _checked(kind, wide).alias("fast"))
            if rows.schema["fast"].dataType.simpleString() == kind.spark.simpleString():
                return rows
            cause = f"it reads {rows.schema['fast'].dataType.simpleString()}, not {kind.spark.simpleString()}"
        except PySparkException as e:
            cause = str(e)
        log.info("Spark's Avro module does not support this schema; Python decodes, more slowly: %s", cause)
    return records.withColumn("fast", F.lit(None).cast(kind.spark))


def encoded(value: Column, fields: Sequence[StructField], schema: str, schema_id: int) -> Column | None:
    """The values of records with these fields; None if Spark might refuse one: then Python says which.

    It refuses none under a schema that was derived from the columns, where everything is nullable.
    """
    if list(avro_schema.column_problems(fields)) or avro_schema.of_columns(fields, _name(schema)) != schema:
        return None
    return F.concat(F.lit(PREFIX.pack(MAGIC, schema_id)), to_avro(value, schema))


def _name(schema: str) -> str:
    described = avro_schema.load(schema)
    return str(described.get("name", "")) if isinstance(described, dict) else ""


def _checked(kind: AvroType, wide: AvroType) -> Column:
    """The column `raw` without the end, if the record was read whole and every value fits."""
    raw = F.col("raw")
    fits = [_fits(raw[name], t, w) for (name, t), (_, w) in zip(kind.fields, wide.fields, strict=True)]
    is_valid = reduce(lambda a, b: a & b, [f for f in fits if f is not None], raw[_END_NAME] == F.lit(_END))
    record = F.struct(*(raw[name].alias(name) for name, _ in kind.fields))
    return F.when(is_valid, record if kind.spark == wide.spark else record.try_cast(kind.spark))


def _fits(value: Column, kind: AvroType, wide: AvroType) -> Column | None:
    """Whether a value is one of its type's, as far as Spark's module does not check it; None: it always is."""
    if kind.logical == "decimal" and kind.precision != wide.precision:
        return value.isNull() | value.try_cast(DecimalType(kind.precision, kind.scale)).isNotNull()
    if kind.kind == "string":
        return F.coalesce(F.is_valid_utf8(value), F.lit(True))
    if kind.kind == "record":
        parts = [_fits(value[name], t, w) for (name, t), (_, w) in zip(kind.fields, wide.fields, strict=True)]
        checks = [part for part in parts if part is not None]
        return reduce(lambda a, b: a & b, checks) if checks else None
    if kind.kind == "array":
        return _all_fit(value, kind, wide)
    if kind.kind == "map":
        keys = F.coalesce(F.forall(F.map_keys(value), F.is_valid_utf8), F.lit(True))
        values = _all_fit(F.map_values(value), kind, wide)
        return keys if values is None else keys & values
    return None


def _all_fit(values: Column, kind: AvroType, wide: AvroType) -> Column | None:
    """As _fits() for the elements of an array."""
    if _fits(F.lit(None), kind.content, wide.content) is None:
        return None

    def fits(element: Column) -> Column:
        check = _fits(element, kind.content, wide.content)
        return F.lit(True) if check is None else check

    return F.coalesce(F.forall(values, fits), F.lit(True))


# ------------------------------------------------ schemas


def _with_end(schema: Any) -> str:
    return json.dumps({**schema, "fields": [*schema["fields"], _END_FIELD]})


def _wide(schema: Any) -> Any:
    """A schema whose decimals have more digits than a long."""
    if isinstance(schema, list):
        return [_wide(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    wide = {k: _wide(v) if k in ("type", "items", "values") else v for k, v in schema.items()}
    if "fields" in schema:
        wide["fields"] = [_wide(f) for f in schema["fields"]]
    precision = schema.get("precision")
    if schema.get("logicalType") == "decimal" and isinstance(precision, int) and precision <= _DIGITS_OF_LONG:
        wide["precision"] = max(precision, _most_digits(schema))
    return wide


def _most_digits(schema: Mapping[str, Any]) -> int:
    """Digits of the longest decimal that Spark and the bytes of this type can hold."""
    if schema["type"] != "fixed":
        return LONGEST_DECIMAL
    largest = 2 ** (8 * int(schema.get("size", 0)) - 1) - 1
    return min(len(str(largest)) - 1, LONGEST_DECIMAL)


@lru_cache(maxsize=128)
def _reads_alike(writer: str, reader: str) -> bool:
    """Whether Spark's module resolves this writer's schema as avro_values.py does, or not at all.

    Avro's Java library pays less attention to the names of types and to the types of defaults, and none to the writer's
    logical types.
    """
    try:
        described = avro_schema.load(writer)
        ours = avro_schema.load(reader)
        of_reader = parsed(reader)
        if store_defaults(of_reader) or misread_field(parsed(writer), of_reader):
            return False
    except Unsupported:
        return False
    if not isinstance(described, dict) or described.get("type") != "record":
        return False
    if _END_NAME in [f["name"] for s in (described, ours) for f in s["fields"]]:
        return False
    written, read = set(_names(described)), set(_names(ours))
    return described.get("name") == ours.get("name") and (written <= read or read <= written)


def _names(schema: Any, namespace: str = "") -> list[str]:
    """The full names of the types that a schema defines."""
    if isinstance(schema, list):
        return [name for s in schema for name in _names(s, namespace)]
    if not isinstance(schema, dict):
        return []
    names = []
    if schema.get("type") in NAMED:
        name = str(schema.get("name", ""))
        namespace = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", namespace))
        names.append(name if "." in name or not namespace else f"{namespace}.{name}")
    nested = [schema[k] for k in ("type", "items", "values") if isinstance(schema.get(k), dict | list)]
    nested += [f["type"] for f in schema.get("fields", ())]
    return names + [name for s in nested for name in _names(s, namespace)]
