"""Pipelines with Avro records whose schemas are in a real registry. The tests write and read with fastavro alone."""

from __future__ import annotations

import io
import struct
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import fastavro
from confluent_kafka import Producer

from ackwright_stream.jobspec import JobSpec
from integration.support.pipelines import create_topics, document, job_of, read
from integration.support.registry import SchemaRegistry
from waiting import ANSWER

PARTITIONS = 2
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
# A producer's next version: a field more, with a default, and another order.
NEWER = {**ORDER, "fields": [*ORDER["fields"][::-1], {"name": "note", "type": ["null", "string"], "default": None}]}
SQL = "SELECT kafka.key AS key, id, upper(item) AS item, price * 2 AS double_price, at FROM source"


def encode(schema_id: int, schema: object, record: object) -> bytes:
    """A value as a producer writes it."""
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


@dataclass
class AvroPipeline:
    """One pipeline from Avro to Avro. A subclass is one of another format with a schema registry."""

    FORMAT: ClassVar[str] = "avro"
    TYPE: ClassVar[str] = "AVRO"  # of its schemas in the registry
    ORDER: ClassVar[Any] = ORDER
    SQL: ClassVar[str] = SQL

    servers: str
    registry: SchemaRegistry
    directory: Path
    guarantee: str = "exactly-once"
    spec: dict[str, Any] = field(default_factory=dict)  # further parts of spec
    source_fields: dict[str, Any] = field(default_factory=dict)
    sink_fields: dict[str, Any] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f"avro-{uuid.uuid4().hex[:8]}")
    sent: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))

    def __post_init__(self) -> None:
        self.source, self.sink = f"{self.name}-in", f"{self.name}-out"
        create_topics(self.servers, self.source, self.sink, partitions=PARTITIONS)
        self.schema_id = self.registry.register(f"{self.source}-value", self.ORDER, self.TYPE)

    def document(self) -> dict[str, Any]:
        url = self.spec.pop("url", self.registry.url)
        described = document(self.servers, self.name, self.guarantee, self.source, self.sink)
        described["spec"] |= {
            "schemaRegistry": {"url": url},
            "source": {"topics": [self.source], "format": self.FORMAT, "schemaVersion": 1, **self.source_fields},
            "transform": {"sql": self.SQL},
            "sink": {
                "kafka": {"topic": self.sink, "format": self.FORMAT, "preservePartition": True, **self.sink_fields}
            },
            **self.spec,
        }
        return described

    def job(self, **more: Any) -> JobSpec:
        return job_of(self.document(), self.directory, **more)

    def feed(self, count: int, schema_id: int | None = None, schema: object = None) -> None:
        """So many further records into each partition, written with a schema."""
        for p in range(PARTITIONS):
            start = self.sent[p]
            records = (self.record(p, n) for n in range(start, start + count))
            self.produce(p, (self.encode(schema_id or self.schema_id, r, schema) for r in records))

    def encode(self, schema_id: int, record: Any, schema: object = None) -> bytes:
        """A value as a producer writes it. schema: of the id; None: ORDER."""
        return encode(schema_id, schema or self.ORDER, record)

    def decode(self, schema_id: int, datum: bytes) -> Any:
        """The record of a value of the sink without its first five bytes."""
        data = io.BytesIO(datum)
        record = fastavro.schemaless_reader(data, fastavro.parse_schema(self.registry.schema(schema_id)))
        assert data.read() == b""
        return record

    def produce(self, partition: int, values: Iterable[bytes | None]) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 5})
        for value in values:
            producer.produce(self.source, value, b"k%d" % partition, partition=partition)
            self.sent[partition] += 1
        assert producer.flush(ANSWER) == 0

    @staticmethod
    def record(partition: int, n: int) -> dict[str, Any]:
        """What fastavro writes without its own logical types: numbers and bytes."""
        from datetime import UTC, datetime
        from decimal import Decimal

        at = datetime.fromtimestamp(1_700_000_000 + n, UTC).replace(microsecond=123_456)
        return {"id": partition * 1_000_000 + n, "item": f"item {n}", "price": Decimal(n).scaleb(-2), "at": at}

    def output(self) -> dict[int, list[dict[str, Any]]]:
        """The committed records of the sink by partition, read by the schema that each names."""
        records: dict[int, list[dict[str, Any]]] = {p: [] for p in range(PARTITIONS)}
        for r in read(self.servers, self.sink):
            assert r.value is not None
            magic, schema_id = struct.unpack_from(">bI", r.value)
            assert magic == 0
            records[r.partition].append(self.decode(schema_id, r.value[5:]))
        return records

    def assert_delivered_once(self, skipped: int = 0) -> None:
        """Each record that was sent, except the last malformed ones, is in the sink once, in order."""
        for p, records in self.output().items():
            assert [r["id"] for r in records] == [p * 1_000_000 + n for n in range(self.sent[p] - skipped)]
            for n, r in enumerate(records):
                assert r == self.expected(self.record(p, n))

    def expected(self, sent: Mapping[str, Any]) -> Mapping[str, Any]:
        """The record of the sink for one of the source."""
        return {
            "id": sent["id"],
            "item": sent["item"].upper(),
            "double_price": sent["price"] * 2,
            "at": sent["at"],
        }
