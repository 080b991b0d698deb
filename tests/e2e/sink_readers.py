"""What is in a bucket and in a topic, read without any code of the sinks and of the audit."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

import fastavro
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from e2e.sink_specs import Letters, Rows
from integration.support.pipelines import read
from integration.support.registry import SchemaRegistry


def delta_rows(files: pafs.FileSystem, table: str) -> Rows:
    """The rows of the latest version of a Delta table, by the text of its protocol. table: bucket and prefix."""
    infos = files.get_file_info(pafs.FileSelector(f"{table}/_delta_log", allow_not_found=True))
    entries = sorted(info.path for info in infos if info.path.endswith(".json"))
    actions = [json.loads(line) for entry in entries for line in _content(files, entry).splitlines()]
    assert not any("remove" in action for action in actions)
    return _rows_of(files, [f"{table}/{unquote(a['add']['path'])}" for a in actions if "add" in a])


def iceberg_rows(files: pafs.FileSystem, metadata: Any) -> Rows:
    """The rows of the current snapshot of an Iceberg table. metadata: the table's, as its catalog has it."""
    current = metadata.get("current-snapshot-id")
    snapshots = [s for s in metadata["snapshots"] if s["snapshot-id"] == current]
    lists = [s["manifest-list"] for s in snapshots]
    manifests = [m["manifest_path"] for listed in lists for m in _avro(files, listed)]
    entries = [entry for manifest in manifests for entry in _avro(files, manifest)]
    live = [_path(entry["data_file"]["file_path"]) for entry in entries if entry["status"] != 2]
    assert len(live) == len({*live}), "a file is in the snapshot twice"
    return _rows_of(files, live)


def json_rows(servers: str, topic: str) -> Rows:
    """The committed records of a topic."""
    values = [json.loads(r.value or b"") for r in read(servers, topic)]
    return Counter((v["n"], v["item"]) for v in values)


def rows(dicts: Iterable[dict[str, Any]]) -> Rows:
    return Counter((row["n"], row["item"]) for row in dicts)


def avro_rows(servers: str, topic: str, registry: SchemaRegistry) -> Rows:
    """The committed records of a topic, decoded by the schemas that they name."""
    schemas: dict[int, Any] = {}
    records: list[dict[str, Any]] = []
    for value in (r.value or b"" for r in read(servers, topic)):
        magic, schema_id = struct.unpack_from(">bI", value)
        assert magic == 0
        if schema_id not in schemas:
            schemas[schema_id] = fastavro.parse_schema(registry.schema(schema_id))
        records.append(fastavro.schemaless_reader(io.BytesIO(value[5:]), schemas[schema_id]))
    return rows(records)


def letters(servers: str, topic: str, source: str, group: str) -> Letters:
    """The committed dead letters in a topic. source, group: those that each has to name."""
    counted: Letters = Counter()
    for letter in read(servers, topic):
        headers = dict(letter.headers)
        assert headers["ackwright.dead-letter.topic"] == source.encode()
        assert headers["ackwright.dead-letter.group"] == group.encode()
        assert headers["ackwright.dead-letter.reason"]
        partition, offset = (int(headers[f"ackwright.dead-letter.{name}"] or b"") for name in ("partition", "offset"))
        counted[partition, offset, letter.key, letter.value] += 1
    return counted


def _rows_of(files: pafs.FileSystem, paths: list[str]) -> Rows:
    return sum((rows(pq.read_table(files.open_input_file(path)).to_pylist()) for path in paths), Counter())


def _content(files: pafs.FileSystem, path: str) -> bytes:
    with files.open_input_stream(path) as file:
        return bytes(file.read())


def _avro(files: pafs.FileSystem, location: str) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(_content(files, _path(location)))))


def _path(location: str) -> str:
    return location.removeprefix("s3://")
