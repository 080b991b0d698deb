"""Reads the positions of a pipeline while processes are killed: how far it has delivered.

They are read where the sink stores them, because a driver that has just been killed cannot report them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackwright_stream.jobspec import DeltaSink, JobSpec, KafkaSink, PostgresSink

if TYPE_CHECKING:
    import psycopg

_TIMEOUT = 2  # seconds
_SELECT = 'SELECT partition, "offset" FROM ackwright.positions WHERE "group" = %s AND topic = %s'


class PositionReader(Protocol):
    """Reads the positions of one pipeline with one source topic."""

    def read(self) -> Mapping[int, int] | None:
        """The position of each partition that has one; None if the store does not answer."""


def reader(job: JobSpec, partitions: Iterable[int]) -> PositionReader:
    """The reader of a pipeline's positions. partitions: of the source."""
    match job.sink:
        case KafkaSink():
            return GroupPositions(job, partitions)
        case PostgresSink():
            return TablePositions(job, job.sink)
        case DeltaSink():
            return LogPositions(job, job.sink)
        case other:
            raise ValueError(f"the demo does not know where the sink {other.kind} stores positions")


class GroupPositions:
    """Committed offsets of the consumer group. Kafka does not answer, for example, while a coordinator moves."""

    def __init__(self, job: JobSpec, partitions: Iterable[int]) -> None:
        self._request = [TopicPartition(job.source.topics[0], p) for p in partitions]
        # A consumer, because librdkafka's admin client can abort the process when a broker is killed during its
        # request. It only reads committed offsets, so the isolation level does not matter.
        settings = {
            "group.id": job.group,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
        self._consumer = Consumer({"bootstrap.servers": job.cluster.bootstrap_servers, **settings})

    def read(self) -> Mapping[int, int] | None:
        try:
            committed = self._consumer.committed(self._request, timeout=_TIMEOUT)
        except KafkaException:
            return None
        return {p.partition: p.offset for p in committed if p.error is None and p.offset >= 0}


class TablePositions:
    """Rows of ackwright.positions in the sink's database. A server that was killed does not answer."""

    def __init__(self, job: JobSpec, sink: PostgresSink) -> None:
        self._pipeline = [job.group, job.source.topics[0]]
        username, password = (Path(sink.credentials, name).read_text() for name in ("username", "password"))
        self._login: dict[str, Any] = {
            "host": sink.host,
            "port": sink.port,
            "dbname": sink.database,
            "user": username,
            "password": password,
            **({"sslmode": "verify-full", "sslrootcert": sink.ca} if sink.tls else {}),
        }
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def read(self) -> Mapping[int, int] | None:
        import psycopg  # a demo with another sink does not need it

        try:
            if self._connection is None:
                self._connection = psycopg.connect(**self._login, connect_timeout=_TIMEOUT, autocommit=True)
            return dict(self._connection.execute(_SELECT, self._pipeline).fetchall())
        except psycopg.errors.UndefinedTable:
            return {}  # no driver has taken the pipeline yet
        except psycopg.Error:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()
            return None


class LogPositions:
    """Application transactions in the log of the sink's table: one file per version, each with a JSON action per line.

    No file is removed during a demo: delta-rs keeps those of the last 30 days.
    """

    def __init__(self, job: JobSpec, sink: DeltaSink) -> None:
        self._log, self._topic = Path(sink.path, "_delta_log"), f"ackwright/{job.group}/{job.source.topics[0]}/"
        self._next = 0  # version
        self._positions: dict[int, int] = {}

    def read(self) -> Mapping[int, int] | None:
        while (entry := self._log / f"{self._next:020}.json").exists():
            for line in entry.read_text().splitlines():
                number = json.loads(line).get("txn")
                if number and number["appId"].startswith(self._topic):
                    self._add(number["appId"].removeprefix(self._topic), number["version"])
            self._next += 1
        return self._positions

    def _add(self, name: str, version: int) -> None:
        """name: <partition>/<topic id> for a lane; the topic's other numbers have other names."""
        match name.split("/"):
            case [partition, _] if partition.isdigit():
                self._positions[int(partition)] = version
