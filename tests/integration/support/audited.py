"""Records, and a pipeline whose job the tests play, for tests of the audit."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Transform
from integration.support.pipelines import wait_until_known
from minimal_job import kafka_sink, minimal_job, with_positions
from waiting import ANSWER

PARTITIONS = 2


@dataclass(frozen=True)
class Record:
    """As produced."""

    key: bytes | None
    value: bytes | None
    partition: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    topic: str | None = None  # None: the sink's


def records(count: int, partition: int = 0) -> list[Record]:
    return [Record(f"k{partition}-{i % 3}".encode(), f"v{i}".encode(), partition) for i in range(count)]


SENT = [
    *records(7, 0),
    *records(5, 1),
    Record(b"same", b"twice"),
    Record(b"same", b"twice"),
    Record(None, b"no key"),
    Record(b"gone", None),
]


@dataclass
class Pipeline:
    """Two topics, a group, and functions that write what a job would write."""

    bootstrap: str
    spark: SparkSession
    name: str = field(default_factory=lambda: f"audit-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.create("in", "out")
        job = minimal_job(
            group=self.name,
            bootstrap=self.bootstrap,
            topics=(self.topic("in"),),
            transform=Transform(sql="SELECT key, value, kafka.headers AS headers FROM source"),
            sink=kafka_sink(self.topic("out"), preserve_partition=True),
            consumer={"isolation.level": "read_committed"},
        )
        self.job = with_positions(job, lanes_topic=self.topic("lanes"))

    def topic(self, role: str) -> str:
        return f"{self.name}-{role}"

    def create(self, *roles: str, **settings: str) -> None:
        """settings: of the topics, with underscores in place of dots."""
        config = {"min.insync.replicas": "2", **{name.replace("_", "."): value for name, value in settings.items()}}
        new = [NewTopic(self.topic(r), PARTITIONS, 3, config=config) for r in roles]
        for future in self.admin.create_topics(new).values():
            future.result(ANSWER)
        wait_until_known(self.bootstrap, *(topic.topic for topic in new))

    def produce(self, role: str, records_: Iterable[Record], then: str | None = None) -> Producer:
        """then: None, without a transaction; else commit | abort | open."""
        more = {"transactional.id": f"{self.name}-{uuid.uuid4().hex[:6]}"} if then else {}
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "linger.ms": 0, **more})
        if then:
            producer.init_transactions(ANSWER)
            producer.begin_transaction()
        for r in records_:
            producer.produce(
                r.topic or self.topic(role), r.value, r.key, partition=r.partition, headers=list(r.headers) or None
            )
        assert producer.flush(ANSWER) == 0
        if then == "commit":
            producer.commit_transaction(ANSWER)
        elif then == "abort":
            producer.abort_transaction(ANSWER)
        return producer

    def delete(self, role: str, partition: int, before: int) -> None:
        """Deletes the records in front of an offset, as retention does."""
        end = TopicPartition(self.topic(role), partition, before)
        self.admin.delete_records([end])[end].result(ANSWER)

    def passed(self, offsets: Mapping[int, int], role: str = "in") -> None:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.name})
        consumer.commit(
            offsets=[TopicPartition(self.topic(role), p, o) for p, o in offsets.items()], asynchronous=False
        )
        consumer.close()

    def audit(self, **more: Any) -> Report:
        """more: fields of the jobspec, and routes, as for audit()."""
        routes = more.pop("routes", ())
        return audit(self.spark, replace(self.job, **more), routes)


def wrong(report: Report) -> tuple[int, int, int, int]:
    return report.lost, report.duplicated, report.unexpected, report.out_of_order


def ends(records_: Iterable[Record]) -> dict[int, int]:
    at = [r.partition for r in records_]
    return {p: at.count(p) for p in range(PARTITIONS)}


def delivered(pipeline: Pipeline, out: Iterable[Record], sent: list[Record] = SENT, **more: Any) -> Report:
    pipeline.produce("in", sent)
    pipeline.produce("out", out, "commit")
    pipeline.passed(ends(sent))
    return pipeline.audit(**more)


def without(records_: list[Record], *keys: bytes | None) -> list[Record]:
    return [r for r in records_ if r.key not in keys]
