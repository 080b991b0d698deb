"""Pipelines with malformed records, and what became of them."""

from __future__ import annotations

import base64
import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from integration.support.driver_lives import DriverLives
from integration.support.lane_letters import HEADERS, is_malformed, key_of, malformed_value
from integration.support.pipelines import Record, create_topics, document, job_of, read
from integration.support.postgres import Database
from integration.support.two_clusters import TwoClusters
from waiting import ANSWER

PARTITIONS = 3  # more than tasks at a time, so that a task has several
SCHEMA = "p INT, n INT"
SQL = "SELECT kafka.key AS key, concat(p, ':', n) AS value FROM source WHERE n % 10 != 7"
PREFIX = "ackwright.dead-letter."


def value(partition: int, n: int) -> bytes:
    """Record n of a partition: one of ten is malformed, and another one is filtered by the transform."""
    return malformed_value(partition, n) if is_malformed(n) else json.dumps({"p": partition, "n": n}).encode()


@dataclass(frozen=True)
class Letter:
    """A malformed record and where it was in the source."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def letter_of(record: Record, source: str, group: str) -> Letter:
    """The malformed record that a record of a dead-letter topic contains."""
    own = {name.removeprefix(PREFIX): v for name, v in record.headers if name.startswith(PREFIX)}
    assert set(own) == {"group", "topic", "partition", "offset", "reason"}
    assert (own["topic"], own["group"]) == (source.encode(), group.encode())
    assert own["reason"]
    headers = tuple((name, v) for name, v in record.headers if not name.startswith(PREFIX))
    return Letter(int(own["partition"] or b""), int(own["offset"] or b""), record.key, record.value, headers)


def letters_of(partitions: int, offsets: range) -> Counter[Letter]:
    """The malformed records of these offsets of each partition."""
    return Counter(
        Letter(p, n, key_of(p, n), malformed_value(p, n), tuple(HEADERS))
        for p in range(partitions)
        for n in offsets
        if is_malformed(n)
    )


def table_letters(database: Database, source: str, group: str) -> Counter[Letter]:
    """The dead letters of the table `letters`."""
    rows = database.sql(
        "SELECT pipeline, source_topic, source_partition, source_offset, coalesce(encode(key, 'hex'), '-'), "
        "encode(value, 'hex'), headers, reason FROM letters"
    )
    return Counter(_letter_of_row(row, source, group) for row in rows)


def _letter_of_row(row: Sequence[str], source: str, group: str) -> Letter:
    own_group, topic, partition, offset, key, text, headers, reason = row
    assert (own_group, topic) == (group, source)
    assert reason
    pairs = [(h["key"], None if h["value"] is None else base64.b64decode(h["value"])) for h in json.loads(headers)]
    key_bytes = None if key == "-" else bytes.fromhex(key)
    return Letter(int(partition), int(offset), key_bytes, bytes.fromhex(text), tuple(pairs))


@dataclass
class LetterPipeline(DriverLives):
    """A pipeline whose records are JSON, one of ten malformed."""

    sink: str
    letter_topic: str

    @property
    def output_servers(self) -> str:
        """The brokers of the output and of its dead letters."""
        return self.servers

    def feed(self, count: int = 200) -> None:
        self.send(value, count)

    def send(self, value_of: Any, count: int) -> None:
        """So many further records to each partition. value_of: from partition and number to the value."""
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 20})
        for n in range(self.fed, self.fed + count):
            for p in range(self.partitions):
                bad = list(HEADERS) if is_malformed(n) else []
                producer.produce(self.source, value_of(p, n), key_of(p, n), partition=p, headers=bad)
        assert producer.flush(ANSWER) == 0
        self.fed += count

    def expected_letters(self) -> Counter[Letter]:
        """The malformed records of feed()."""
        return letters_of(self.partitions, range(self.fed))

    def letters(self) -> Counter[Letter]:
        """The committed dead letters."""
        records = read(self.output_servers, self.letter_topic)
        return Counter(letter_of(r, self.source, self.spec.group) for r in records)

    def expected_output(self) -> Counter[bytes]:
        return Counter(
            b"%d:%d" % (p, n) for p in range(self.partitions) for n in range(self.fed) if n % 10 not in (3, 7)
        )

    def output(self) -> Counter[bytes | None]:
        return Counter(r.value for r in read(self.output_servers, self.sink))

    def assert_exactly_once(self) -> None:
        assert self.output() == self.expected_output()
        assert self.letters() == self.expected_letters()


@dataclass
class OtherClusterPipeline(LetterPipeline):
    """The same to another cluster than that of the source."""

    clusters: TwoClusters

    @property
    def output_servers(self) -> str:
        return self.clusters.sink.bootstrap_servers


def source_of(topic: str) -> dict[str, Any]:
    """spec.source of such a pipeline."""
    return {"topics": [topic], "format": "json", "schema": SCHEMA, "onMalformed": "deadLetter"}


def letter_pipeline(
    kafka: EmbeddedKafka,
    directory: Path,
    guarantee: str,
    *,
    max_fraction: float = 0.5,
    transform: dict[str, Any] | None = None,
    **more: Any,
) -> LetterPipeline:
    """A pipeline to a topic, with a dead-letter topic that has more partitions than the source.

    more: further fields of the spec.
    """
    servers, name = kafka.bootstrap_servers, f"letters-{uuid.uuid4().hex[:8]}"
    topics: Sequence[str] = (f"{name}-in", f"{name}-out", f"{name}-letters")
    create_topics(servers, *topics[:2], partitions=PARTITIONS)
    create_topics(servers, topics[2], partitions=PARTITIONS + 1)
    described = document(servers, name, guarantee, topics[0], topics[1], **more)
    described["spec"] |= {
        "source": source_of(topics[0]),
        "transform": transform or {"sql": SQL},
    }
    letters = {"topic": topics[2], "maxFraction": max_fraction}
    described["spec"]["sink"] = {"kafka": {"topic": topics[1], "deadLetter": letters}}
    spec = job_of(described, directory)
    return LetterPipeline(servers, directory, spec, PARTITIONS, topics[1], topics[2])


def letter_pipeline_between(clusters: TwoClusters, directory: Path, guarantee: str) -> OtherClusterPipeline:
    """A pipeline from one cluster to the other, where its dead-letter topic is as well."""
    name = f"letters-{uuid.uuid4().hex[:8]}"
    source, output, letters = (f"{name}-{part}" for part in ("in", "out", "letters"))
    clusters.create_topics(source, output, PARTITIONS)
    create_topics(clusters.sink.bootstrap_servers, letters, partitions=PARTITIONS + 1, replication=1)
    described = clusters.document(name, guarantee, source, output)
    described["spec"] |= {"source": source_of(source), "transform": {"sql": SQL}}
    to = {"topic": output, "bootstrapServers": clusters.sink.bootstrap_servers}
    described["spec"]["sink"] = {"kafka": {**to, "deadLetter": {"topic": letters, "maxFraction": 0.5}}}
    spec = job_of(described, directory)
    return OtherClusterPipeline(
        clusters.source.bootstrap_servers, directory, spec, PARTITIONS, output, letters, clusters
    )


@dataclass
class TablePipeline(LetterPipeline):
    """The same into the tables `rows` and `letters` of a database."""

    database: Database

    def letters(self) -> Counter[Letter]:
        return table_letters(self.database, self.source, self.spec.group)

    def output(self) -> Counter[bytes | None]:
        return Counter(text.encode() for (text,) in self.database.sql("SELECT value FROM rows"))


def table_pipeline(
    kafka: EmbeddedKafka,
    database: Database,
    directory: Path,
    guarantee: str,
    *,
    max_fraction: float = 0.5,
    more: Mapping[str, Any] | None = None,
    **fields: Any,
) -> TablePipeline:
    """A pipeline into tables that it creates. more: further fields of the spec. fields: of spec.sink.postgres."""
    servers, name = kafka.bootstrap_servers, f"letters-{uuid.uuid4().hex[:8]}"
    create_topics(servers, f"{name}-in", partitions=PARTITIONS)
    described = document(servers, name, guarantee, f"{name}-in", "not-used")
    letters = {"table": "letters", "maxFraction": max_fraction}
    described["spec"] |= {
        "source": source_of(f"{name}-in"),
        "transform": {"sql": SQL},
        "sink": database.spec("rows", **{"createTable": True, "deadLetter": letters, **fields}),
        **(more or {}),
    }
    spec = job_of(described, directory, secrets=str(database.secrets))
    return TablePipeline(servers, directory, spec, PARTITIONS, "rows", "letters", database)
