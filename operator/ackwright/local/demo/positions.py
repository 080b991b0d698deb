"""Reads the positions of a pipeline while processes are killed: how far it has delivered.

They are read where the sink stores them, because a driver that has just been killed cannot report them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackwright_stream.jobspec import DeltaSink, FilesSink, IcebergSink, JobSpec, KafkaSink, PostgresSink

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
        case IcebergSink():
            return PropertyPositions(job, job.sink)
        case FilesSink():
            return FilePositions(job, job.sink)
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
        self._log, self._prefix = Path(sink.path, "_delta_log"), _prefix(job)
        self._next = 0  # version
        self._positions: dict[int, int] = {}

    def read(self) -> Mapping[int, int] | None:
        while (entry := self._log / f"{self._next:020}.json").exists():
            for line in entry.read_text().splitlines():
                number = json.loads(line).get("txn")
                if number and (partition := _partition(number["appId"], self._prefix)) is not None:
                    self._positions[partition] = number["version"]
            self._next += 1
        return self._positions


class PropertyPositions:
    """Properties of an Iceberg table. Its catalog is a file of SQLite, which names the table's latest metadata."""

    def __init__(self, job: JobSpec, sink: IcebergSink) -> None:
        self._catalog, self._prefix = Path(sink.uri.removeprefix("sqlite:///")), _prefix(job)

    def read(self) -> Mapping[int, int] | None:
        if not self._catalog.exists():
            return {}  # no driver has taken the pipeline yet
        try:
            with closing(sqlite3.connect(self._catalog, timeout=_TIMEOUT)) as catalog:
                locations = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
            metadata = [json.loads(Path(location.removeprefix("file://")).read_text()) for (location,) in locations]
        except (OSError, sqlite3.Error):
            return None
        numbers = {name: value for table in metadata for name, value in table["properties"].items()}
        positions = {_partition(name, self._prefix): value for name, value in numbers.items()}
        return {partition: int(value) for partition, value in positions.items() if partition is not None}


class FilePositions:
    """The ends of the last files, or what the last entry of the drivers has where there are no files behind it."""

    def __init__(self, job: JobSpec, sink: FilesSink) -> None:
        self._path, self._topic = Path(sink.path), job.source.topics[0]

    def read(self) -> Mapping[int, int] | None:
        import pyarrow.parquet as pq  # a demo with another sink does not need it

        try:
            entry = max(self._path.glob("_ackwright/state/*.json"), default=None)
            positions = (
                {n["partition"]: n["position"]["offset"] for n in json.loads(entry.read_text())["lanes"]}
                if entry
                else {}
            )
            for directory in self._path.glob(f"{self._topic}-*.*"):
                if last := max(directory.glob("[0-9]*.parquet"), default=None):
                    footer = pq.read_metadata(last).metadata or {}
                    partition = int(footer[b"ackwright.partition"])
                    positions[partition] = max(positions.get(partition, 0), int(footer[b"ackwright.until"]))
        except OSError:  # an old entry was removed just now
            return None
        return positions


def _prefix(job: JobSpec) -> str:
    """Of the names of the numbers that a table keeps for the lanes."""
    return f"ackwright/{job.group}/{job.source.topics[0]}/"


def _partition(name: str, prefix: str) -> int | None:
    """The partition whose position has this name, <prefix><partition>/<topic id>; None: it is another number.

    The topic id may contain "/".
    """
    partition, _, rest = name.removeprefix(prefix).partition("/")
    is_position = name.startswith(prefix) and partition.isdigit() and not rest.endswith("/first")
    return int(partition) if is_position else None
