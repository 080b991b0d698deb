"""Pipelines from real brokers through Spark to a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import JobSpec
from integration.support.pipelines import (
    Record,
    Running,
    Verdict,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    running,
)
from integration.support.postgres import Database

PARTITIONS, EACH = 2, 100
TABLE = "CREATE TABLE rows (id bigserial, key bytea, value bytea)"


@dataclass
class Pipeline:
    """One pipeline into a table, over several lives of its driver."""

    servers: str
    directory: Path
    database: Database
    spec: JobSpec
    fed: int = 0
    lives: int = 0

    @property
    def source(self) -> str:
        return self.spec.source.topics[0]

    def feed(self) -> None:
        feed(self.servers, self.source, PARTITIONS, self.fed, EACH)
        self.fed += EACH

    @contextmanager
    def life(self) -> Iterator[Running]:
        self.lives += 1
        with running(self.spec, self.directory / str(self.lives)) as job:
            yield job

    def caught_up(self, job: Running) -> None:
        job.until_position(PARTITIONS, self.fed)

    def positions(self) -> list[int]:
        """The positions, as psql reads them."""
        return [int(n) for (n,) in self.database.sql('SELECT "offset" FROM ackwright.positions ORDER BY partition')]

    def verdict(self) -> Verdict:
        """What psql reads, compared with what was fed."""
        rows = self.database.sql("SELECT encode(key, 'hex'), encode(value, 'hex') FROM rows ORDER BY id")
        records = []
        for n, (key, value) in enumerate(rows):
            text = bytes.fromhex(value)
            records.append(Record("", int(text.split(b":")[0]), n, bytes.fromhex(key), text, ()))
        return judge(records, PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == [self.fed] * PARTITIONS


def pipeline(kafka: EmbeddedKafka, database: Database, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    """A pipeline into the table `rows`, which must exist unless the sink creates it."""
    servers, source = kafka.bootstrap_servers, f"postgres-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=PARTITIONS)
    sink = more.pop("sink", database.spec())
    spec = document(servers, source, guarantee, source, "not-used", **more)
    spec["spec"]["sink"] = sink
    job = job_of(spec, directory, secrets=str(database.secrets))
    return Pipeline(servers, directory, database, job)
