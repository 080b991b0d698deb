"""Pipelines from real brokers through Spark to a real PostgreSQL."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import (
    Record,
    Verdict,
    create_topics,
    document,
    job_of,
    judge,
)
from integration.support.postgres import Database

PARTITIONS, EACH = 2, 100
TABLE = "CREATE TABLE rows (id bigserial, key bytea, value bytea)"


@dataclass
class Pipeline(DriverLives):
    """One pipeline into a table, over several lives of its driver."""

    database: Database

    def feed(self, count: int = EACH) -> None:
        super().feed(count)

    def positions(self) -> list[int]:
        """The positions, as psql reads them."""
        return [int(n) for (n,) in self.database.sql('SELECT "offset" FROM ackwright.positions ORDER BY partition')]

    def verdict(self) -> Verdict:
        """What psql reads, compared with what was fed."""
        return verdict_of(self.database, PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == [self.fed] * PARTITIONS


def verdict_of(database: Database, partitions: int, count: int) -> Verdict:
    """What psql reads from the table `rows`, compared with so many records of each partition."""
    rows = database.sql("SELECT encode(key, 'hex'), encode(value, 'hex') FROM rows ORDER BY id")
    records = []
    for n, (key, value) in enumerate(rows):
        text = bytes.fromhex(value)
        records.append(Record("", int(text.split(b":")[0]), n, bytes.fromhex(key), text, ()))
    return judge(records, partitions, count)


def pipeline(kafka: EmbeddedKafka, database: Database, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline into the table `rows`, which must exist unless the sink creates it."""
    servers, source = kafka.bootstrap_servers, f"postgres-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    sink = more.pop("sink", database.spec())
    spec = document(servers, source, guarantee, source, "not-used", **more)
    spec["spec"]["sink"] = sink
    job = job_of(spec, directory, secrets=str(database.secrets))
    return Pipeline(servers, directory, job, PARTITIONS, database)
