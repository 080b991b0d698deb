"""Dead letters: malformed records of the source that are delivered as they are, beside the output.

Spark has no step that gives one stage of a batch two outputs, and a transform may drop any row. So a dead letter goes
around the transform: a function on every parsed row passes on the malformed ones (delivery/dead_letters.py). Job and
audit share what is here: the columns of a dead letter, and its form as a record of Kafka.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from ackwright_stream.formats.base import METADATA

# Headers that follow those of the record.
PREFIX = "ackwright.dead-letter."
GROUP, TOPIC, PARTITION, OFFSET, REASON = (f"{PREFIX}{n}" for n in ("group", "topic", "partition", "offset", "reason"))
KEY = f"{PREFIX}key"  # the key of the record, in a topic whose keys are those of keyed_records()

_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
# A dead letter as sinks take it: the place of the record in the source, the record, and why it is malformed.
COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
        ("reason", pa.string()),
    ]
)
RECORD = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("headers", _HEADERS)])  # of Kafka
RECORD_FIELDS = tuple(name for name in COLUMNS.names if name != "reason")


def text_of(malformed: Column, reason: Column) -> Column:
    """A dead letter as one line of JSON, bytes in Base64; null for a row that is not malformed.

    Text, because nulls of a list column would take most of a batch's time on the way to Python (sinks/kafka/columns.py,
    worker_columns).
    """
    fields = (F.col(f"{METADATA}.{name}").alias(name) for name in RECORD_FIELDS)
    return F.when(malformed, F.to_json(F.struct(*fields, reason.alias("reason"))))


def of_text(lines: Iterable[str | bytes]) -> pa.RecordBatch:
    """The dead letters of lines that text_of() wrote, with COLUMNS."""
    return pa.RecordBatch.from_pylist([_decoded(json.loads(line)) for line in lines], schema=COLUMNS)


def described(letters: pa.RecordBatch | pa.Table) -> str:
    """The first of some dead letters (COLUMNS), in a clause for a message; without one a place to look for them."""
    for letter in letters.slice(0, 1).to_pylist():
        return f"{letter['topic']}-{letter['partition']}@{letter['offset']}, which {letter['reason']}"
    return "in the source"


def _decoded(letter: Mapping[str, Any]) -> dict[str, Any]:
    """to_json leaves fields out that are null."""
    headers = letter.get("headers")
    return {
        **letter,
        "key": _bytes(letter.get("key")),
        "value": _bytes(letter.get("value")),
        "headers": headers and [{"key": h["key"], "value": _bytes(h.get("value"))} for h in headers],
    }


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def records(letters: pa.RecordBatch, group: str) -> pa.RecordBatch:
    """Dead letters as records of Kafka, with RECORD: key and value as they were, and further headers.

    group: of the pipeline. A topic may have the dead letters of several pipelines.
    """
    places = letters.select(["topic", "partition", "offset", "headers", "reason"]).to_pylist()
    headers = [_headers(letter, group, {}) for letter in places]
    return pa.RecordBatch.from_arrays([letters["key"], letters["value"], pa.array(headers, _HEADERS)], schema=RECORD)


def keyed_records(letters: pa.RecordBatch, group: str) -> pa.RecordBatch:
    """Dead letters as records() of a compacted topic, which keeps the last record of each key.

    The key is the record's place in the source, and the header KEY has the key that it had, null for none. The key
    names the pipeline: others may read the same source, and compaction would take their dead letters for repeated ones.
    """
    rows = letters.to_pylist()
    keys = [f"{group}/{row['topic']}-{row['partition']}@{row['offset']}".encode() for row in rows]
    headers = [_headers(row, group, {KEY: row["key"]}) for row in rows]
    columns = [pa.array(keys, pa.binary()), letters["value"], pa.array(headers, _HEADERS)]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD)


def _headers(letter: Mapping[str, Any], group: str, further: Mapping[str, bytes | None]) -> list[dict[str, Any]]:
    """The record's headers, and then those of a dead letter, with the reason last."""
    own = ((GROUP, group), (TOPIC, letter["topic"]), (PARTITION, letter["partition"]), (OFFSET, letter["offset"]))
    return [
        *(letter["headers"] or ()),
        *({"key": name, "value": str(value).encode()} for name, value in own),
        *({"key": name, "value": value} for name, value in further.items()),
        {"key": REASON, "value": letter["reason"].encode()},
    ]
