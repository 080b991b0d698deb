"""A topic in the sink's own cluster that takes small messages only: max.message.bytes. See docs/topics.md.

The source's cluster has a topic of the same name, which takes larger messages and does not count.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ackwright_stream.cluster import Brokers
from ackwright_stream.jobspec import ExitCode, KafkaSink, Reason
from ackwright_stream.reports import Failure
from ackwright_stream.topic_limits import limits_of_job
from integration.support.driver_lives import DriverLives
from integration.support.letter_pipelines import letter_pipeline_between
from integration.support.new_topics import set_topic
from integration.support.pipelines import assert_nothing_hangs, job_of, positions_of, read
from integration.support.two_clusters import TwoClusters, create_topic
from waiting import ANSWER, WAIT

PARTITIONS = 2
LIMIT = 10_000  # bytes; less than a batch of the Java producer
BATCH = 2_000  # records of a partition in a micro-batch: in all several times the limit
ALL = 2 * BATCH
LARGE_AT = (1, BATCH + 1)  # partition and offset of the record that is too large; near the start of its micro-batch


def value(partition: int, n: int) -> bytes:
    return b"x" * 2 * LIMIT if (partition, n) == LARGE_AT else b"%d:%d" % (partition, n)


def values(partition: int, *ranges: range) -> list[bytes]:
    """The values of the records of a partition."""
    return [value(partition, n) for range_ in ranges for n in range_]


@dataclass
class Pipeline(DriverLives):
    """Runs until the source's end, and preserves partitions."""

    clusters: TwoClusters

    @property
    def sink(self) -> str:
        return str(self.spec.sink_of(KafkaSink).topic)

    def feed(self, count: int = ALL) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 20})
        for n in range(self.fed, self.fed + count):
            for p in range(self.partitions):
                producer.produce(self.source, value(p, n), partition=p)
        assert producer.flush(ANSWER) == 0
        self.fed += count

    def run(self, code: ExitCode) -> Failure | None:
        """Runs a driver that ends with this code; returns why it has failed."""
        with self.life() as job:
            assert job.job.wait(WAIT) == code, job.job.failure()
            return job.job.failure()

    def positions(self) -> dict[int, int]:
        marker = self.clusters.marker_prefix + self.source
        return positions_of(self.clusters.sink.bootstrap_servers, self.spec.group, marker, self.partitions)

    def output(self) -> list[list[bytes | None]]:
        """The values that a read_committed reader reads, by partition."""
        records = read(self.clusters.sink.bootstrap_servers, self.sink)
        return [[r.value for r in records if r.partition == p] for p in range(self.partitions)]


def pipeline(clusters: TwoClusters, directory: Path, guarantee: str) -> Pipeline:
    """A pipeline whose sink's topic takes messages of up to LIMIT."""
    name = f"two-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    clusters.create_topics(source, sink, PARTITIONS)
    create_topic(clusters.source, sink, PARTITIONS)
    set_topic(clusters.sink.bootstrap_servers, sink, "max.message.bytes", str(LIMIT))
    described = clusters.document(name, guarantee, source, sink, trigger={"availableNow": True})
    described["spec"]["source"]["maxOffsetsPerTrigger"] = PARTITIONS * BATCH
    job = job_of(described, directory)
    return Pipeline(clusters.source.bootstrap_servers, directory, job, PARTITIONS, clusters)


def test_limits_are_read_from_the_sinks_cluster(two_clusters: TwoClusters, tmp_path: Path) -> None:
    letters = letter_pipeline_between(two_clusters, tmp_path, "exactly-once")
    limits = {letters.sink: LIMIT, letters.letter_topic: 2 * LIMIT}
    for topic, limit in limits.items():
        create_topic(two_clusters.source, topic, PARTITIONS)
        set_topic(two_clusters.source.bootstrap_servers, topic, "max.message.bytes", str(10 * limit))
        set_topic(two_clusters.sink.bootstrap_servers, topic, "max.message.bytes", str(limit))
    assert limits_of_job(letters.spec, Brokers(letters.spec.cluster, ANSWER)) == limits


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_record_that_is_too_large_for_the_sinks_topic_is_named(
    two_clusters: TwoClusters, tmp_path: Path, guarantee: str
) -> None:
    """Small records before it arrive, and all that is behind it once the topic takes it."""
    p = pipeline(two_clusters, tmp_path, guarantee)
    p.feed()
    failure = p.run(ExitCode.HALTED)
    assert failure is not None
    assert failure.reason is Reason.ROW_REFUSED
    lane, offset = LARGE_AT
    row = rf"its row of 20\d\d\d bytes is too large for topic {p.sink}, whose max.message.bytes is {LIMIT}"
    assert re.match(rf"record {p.source}-{lane}@{offset}: {row}; change the transform", failure.message)
    halted = p.positions()
    abandoned = guarantee == "at-most-once"  # the batch of the record is
    assert halted[lane] == (ALL if abandoned else BATCH)
    assert halted[0] in (BATCH, ALL)  # the other task may end before or after it
    if guarantee == "exactly-once":
        assert p.output() == [values(n, range(halted[n])) for n in range(PARTITIONS)]

    set_topic(two_clusters.sink.bootstrap_servers, p.sink, "max.message.bytes", "1000000")
    p.run(ExitCode.OK)
    assert p.positions() == dict.fromkeys(range(PARTITIONS), ALL)
    assert_nothing_hangs(two_clusters.sink.bootstrap_servers, p.sink)
    output = p.output()
    if guarantee == "exactly-once":
        assert output == [values(n, range(ALL)) for n in range(PARTITIONS)]
    elif guarantee == "at-least-once":
        assert [set(of_lane) for of_lane in output] == [set(values(n, range(ALL))) for n in range(PARTITIONS)]
    else:
        assert [of_lane[:BATCH] for of_lane in output] == [values(n, range(BATCH)) for n in range(PARTITIONS)]
        assert value(*LARGE_AT) not in output[lane]
        assert [len(of_lane) for of_lane in output] == [len(set(of_lane)) for of_lane in output]
