"""Dead letters as rows of a table apart, which is written like that of the output."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField

from ackwright_stream.sinks.base import Rows
from ackwright_stream.spark_internals.arrow import spark_schema

ROWS = pa.schema(
    [
        ("pipeline", pa.string()),  # its consumer group; a table may have the dead letters of several pipelines
        ("source_topic", pa.string()),
        ("source_partition", pa.int32()),
        ("source_offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.string()),  # JSON: [{"key": …, "value": Base64 or null}, …]; null without headers
        ("reason", pa.string()),
    ]
)


def fields() -> list[StructField]:
    """The columns of the rows."""
    return list(spark_schema(ROWS).fields)


def rows(letters: Rows, pipeline: str) -> Rows:
    """Dead letters (dead_letters.COLUMNS) as rows."""
    return (pa.RecordBatch.from_pylist([_row(x, pipeline) for x in b.to_pylist()], schema=ROWS) for b in letters)


def _row(letter: Mapping[str, Any], pipeline: str) -> dict[str, Any]:
    place = {f"source_{name}": letter[name] for name in ("topic", "partition", "offset")}
    reason = letter["reason"].replace("\0", "\N{REPLACEMENT CHARACTER}")  # which no text of PostgreSQL's can hold
    record = {"key": letter["key"], "value": letter["value"], "headers": _text(letter["headers"])}
    return {"pipeline": pipeline, **place, **record, "reason": reason}


def _text(headers: list[Mapping[str, Any]] | None) -> str | None:
    if not headers:
        return None
    values = ((h["key"], h["value"]) for h in headers)
    return json.dumps([{"key": k, "value": None if v is None else base64.b64encode(v).decode()} for k, v in values])
