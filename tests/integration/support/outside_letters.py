"""Pipelines with malformed records into a sink outside Kafka, whose dead letters are in a topic."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support import delta_stores, files_stores, iceberg_stores
from integration.support.letter_pipelines import PARTITIONS, SQL, Letter, LetterPipeline, letter_of, source_of
from integration.support.new_topics import set_topic
from integration.support.pipelines import Record, create_topics, document, job_of, read

SINKS = ("delta", "iceberg", "files")
Rows = Callable[[], Sequence[Mapping[str, Any]]]


def keyed_letter_of(record: Record, source: str, group: str) -> Letter:
    """The malformed record that a record of a compacted dead-letter topic contains, whatever its key is."""
    (key,) = (value for name, value in record.headers if name == "ackwright.dead-letter.key")
    others = tuple(h for h in record.headers if h[0] != "ackwright.dead-letter.key")
    plain = Record(record.topic, record.partition, record.offset, key, record.value, others)
    return letter_of(plain, source, group)


def key_of_letter(letter: Letter, source: str, group: str) -> bytes:
    """The key that its record has in such a topic."""
    return f"{group}/{source}-{letter.partition}@{letter.offset}".encode()


@dataclass
class OutsidePipeline(LetterPipeline):
    """The same into a table or files."""

    rows: Rows

    def records(self) -> list[Record]:
        """The records of the dead-letter topic."""
        return read(self.servers, self.letter_topic)

    def letters(self) -> Counter[Letter]:
        """The dead letters, of each key the last one: those that compaction keeps."""
        last = {record.key: record for record in self.records()}
        letters = {key: keyed_letter_of(record, self.source, self.spec.group) for key, record in last.items()}
        assert all(key == key_of_letter(letter, self.source, self.spec.group) for key, letter in letters.items())
        return Counter(letters.values())

    def most_copies(self) -> int:
        """How often the record is in the topic that is there most often."""
        return max(Counter(record.key for record in self.records()).values())

    def output(self) -> Counter[bytes | None]:
        return Counter(row["value"].encode() for row in self.rows())

    def configure_letter_topic(self, name: str, value: str) -> None:
        """Changes a setting of the dead-letter topic."""
        set_topic(self.servers, self.letter_topic, name, value)


def outside_pipeline(
    kafka: EmbeddedKafka,
    directory: Path,
    sink: str,
    guarantee: str,
    *,
    max_fraction: float = 0.5,
    transform: dict[str, Any] | None = None,
    **more: Any,
) -> OutsidePipeline:
    """A pipeline to a sink of this name in a directory, with a compacted dead-letter topic."""
    servers, name = kafka.bootstrap_servers, f"outside-{uuid.uuid4().hex[:8]}"
    create_topics(servers, f"{name}-in", partitions=PARTITIONS)
    create_topics(servers, topic := f"{name}-letters", partitions=PARTITIONS + 1)
    declared, rows = lake_of(sink, directory)
    letters = {"topic": topic, "maxFraction": max_fraction}
    described = document(servers, name, guarantee, f"{name}-in", "not-used", **more)
    described["spec"] |= {
        "source": source_of(f"{name}-in"),
        "transform": transform or {"sql": SQL},
        "sink": {sink: {**declared, "deadLetter": letters}},
    }
    spec = job_of(described, directory, secrets=str(directory))
    pipeline = OutsidePipeline(servers, directory, spec, PARTITIONS, sink, topic, rows)
    pipeline.configure_letter_topic("cleanup.policy", "compact")
    return pipeline


def lake_of(name: str, directory: Path) -> tuple[dict[str, Any], Rows]:
    """The fields of a sink outside Kafka in a directory, and a reader of its rows."""
    match name:
        case "delta":
            path = directory / "table"
            return {"path": str(path), "createTable": True}, delta_stores.Table(path).rows
        case "files":
            path = directory / "files"
            return {"path": str(path)}, files_stores.Files(path).rows
        case _:
            table = iceberg_stores.Table(directory / "warehouse")
            catalog = {"uri": table.uri, "warehouse": table.warehouse}
            return {"catalog": catalog, "table": table.name, "createTable": True}, table.rows
