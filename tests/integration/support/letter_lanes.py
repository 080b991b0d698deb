"""Pipelines with dead letters into each sink, whose drivers are processes without Spark, and what is in the sink then.

The readers share no code with the job: a consumer of the tests, psql, and readers of the formats (lake_of).
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import JobSpec, KafkaSink, to_json
from integration.support.lane_letters import is_malformed
from integration.support.lane_pipeline import LanePipeline, LaneProcess, Result
from integration.support.letter_pipelines import Letter, letter_of, letters_of, source_of, table_letters
from integration.support.new_topics import set_topic
from integration.support.outside_letters import SINKS as LAKES
from integration.support.outside_letters import key_of_letter, keyed_letter_of, lake_of
from integration.support.pipelines import create_topics, document, feed, job_of, read
from integration.support.postgres import Database
from integration.support.two_clusters import TwoClusters, create_topic
from minimal_job import with_member

PARTITIONS, RECORDS = 2, 400  # of each partition
KAFKA = ("kafka", "another-kafka")
SINKS = (*KAFKA, "postgres", *LAKES)
STAGING = ("delta", "iceberg")  # their driver commits


class Servers(Protocol):
    """The servers that a sink needs; each is started when it is first used."""

    @property
    def kafka(self) -> EmbeddedKafka: ...
    @property
    def two_clusters(self) -> TwoClusters: ...
    @property
    def database(self) -> Database: ...


@dataclass(frozen=True)
class Content:
    """Rows and dead letters of a sink, as a reader of the committed ones counts them."""

    rows: Counter[bytes]
    letters: Counter[Letter]  # in a compacted topic those that compaction keeps
    records: Counter[Letter]  # and in this case all; else the same

    def between(self, start: int, until: int, partition: int | None = None) -> Content:
        """Those of these offsets, of one partition or of all."""

        def counts(p: int, n: int) -> bool:
            return start <= n < until and partition in (None, p)

        def only(letters: Counter[Letter]) -> Counter[Letter]:
            return Counter({x: count for x, count in letters.items() if counts(x.partition, x.offset)})

        def place(value: bytes) -> tuple[int, int]:
            p, n = map(int, value.split(b":"))
            return p, n

        rows = Counter({value: count for value, count in self.rows.items() if counts(*place(value))})
        return Content(rows, only(self.letters), only(self.records))


def fed(start: int, until: int, partition: int | None = None) -> Content:
    """What a pipeline makes of these offsets of each partition, once."""
    offsets = range(start, until)
    rows = Counter(b"%d:%d" % (p, n) for p in range(PARTITIONS) for n in offsets if not is_malformed(n))
    letters = letters_of(PARTITIONS, offsets)
    return Content(rows, letters, letters).between(start, until, partition)


@dataclass
class LetterLanes:
    """One pipeline."""

    sink: str
    pipeline: LanePipeline
    rows: Callable[[], Counter[bytes]]
    letter_records: Callable[[], Counter[tuple[bytes | None, Letter]]]  # by key
    keyed: bool  # in a compacted topic

    @property
    def job(self) -> JobSpec:
        job: JobSpec = self.pipeline.job
        return job

    def drive(self, until: int, points: Mapping[str, str] | None = None, unsafe: str | None = None) -> LaneProcess:
        """A driver that delivers up to `until` of each partition; as LanePipeline.drive()."""
        rows = "lane" if self.sink == "files" else None if self.sink in KAFKA else "partition"
        return self.pipeline.drive(until, points, letters=True, rows=rows, unsafe=unsafe)

    def deliver(self, until: int, unsafe: str | None = None) -> Result:
        """Runs a driver up to `until`."""
        result = self.drive(until, unsafe=unsafe).result()
        assert result.code == 0, result
        return result

    def content(self) -> Content:
        """What a reader gets now."""
        by_key = self.letter_records()
        records: Counter[Letter] = Counter()
        for (_, letter), count in by_key.items():
            records[letter] += count
        letters = Counter(letter for _, letter in by_key) if self.keyed else records
        return Content(self.rows(), letters, records)

    def assert_keys(self) -> None:
        """Asserts that the records of a compacted topic have the keys of docs/dead-letters.md."""
        for key, letter in self.letter_records() if self.keyed else ():
            assert key == key_of_letter(letter, self.pipeline.source, self.job.group)


@contextmanager
def letter_lanes(servers: Servers, directory: Path, sink: str, guarantee: str) -> Iterator[LetterLanes]:
    """A pipeline into this sink, one task of which has both partitions. Processes that run at the end are killed."""
    name = f"letters-{uuid.uuid4().hex[:8]}"
    source, output, letters = f"{name}-in", f"{name}-out", f"{name}-dead"
    at_source = servers.two_clusters.source if sink == "another-kafka" else servers.kafka
    brokers = servers.two_clusters.sink.bootstrap_servers if sink == "another-kafka" else at_source.bootstrap_servers
    if sink == "another-kafka":
        create_topic(at_source, source, PARTITIONS)
        create_topics(brokers, output, letters, partitions=PARTITIONS, replication=1)
        described = servers.two_clusters.document(name, guarantee, source, output)
    else:
        create_topics(brokers, source, output, letters, partitions=PARTITIONS)
        described = document(brokers, name, guarantee, source, output)
    feed(at_source.bootstrap_servers, source, PARTITIONS, 0, RECORDS)  # only their offsets count (lane_letters.py)
    secrets, rows = directory, lambda: Counter(record.value or b"" for record in read(brokers, output))
    declared: dict[str, Any] = described["spec"]["sink"]
    match sink:
        case "kafka" | "another-kafka":
            declared["kafka"]["deadLetter"] = {"topic": letters, "maxFraction": 0.5}
        case "postgres":
            database = servers.database
            secrets, rows = database.secrets, lambda: _rows_of_table(database)
            declared = database.spec(createTable=True, deadLetter={"table": "letters", "maxFraction": 0.5})
        case _:
            fields, of_lake = lake_of(sink, directory)
            rows = lambda: Counter(row["value"] for row in of_lake())  # noqa: E731
            declared = {sink: {**fields, "deadLetter": {"topic": letters, "maxFraction": 0.5}}}
            set_topic(brokers, letters, "cleanup.policy", "compact")
    described["spec"] |= {"source": source_of(source), "transform": {"sql": "SELECT kafka.key AS key FROM source"}}
    described["spec"]["sink"] = declared
    job = replace(job_of(described, directory, secrets=str(secrets)), slots=1)
    if isinstance(job.sink, KafkaSink):
        job = with_member(job, session_timeout_ms="300000")
    (directory / "job.json").write_text(to_json(job))
    group, keyed = job.group, sink in LAKES

    def letter_records() -> Counter[tuple[bytes | None, Letter]]:
        if sink == "postgres":
            return Counter({(None, x): count for x, count in table_letters(database, source, group).items()})
        parse = keyed_letter_of if keyed else letter_of
        return Counter((record.key, parse(record, source, group)) for record in read(brokers, letters))

    with Watch() as watch:
        pipeline = LanePipeline(brokers, directory, job, PARTITIONS, RECORDS, watch)
        yield LetterLanes(sink, pipeline, rows, letter_records, keyed)


def _rows_of_table(database: Database) -> Counter[bytes]:
    rows: Sequence[Sequence[str]] = database.sql("SELECT encode(value, 'hex') FROM rows")
    return Counter(bytes.fromhex(value) for (value,) in rows)
