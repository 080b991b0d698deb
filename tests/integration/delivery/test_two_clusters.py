"""The guarantees from one Kafka cluster to another: real brokers of both, real Spark, and processes that are killed.

tests/integration/two_clusters proves the transactions without Spark, with their control.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import NewPartitions

from ackwright.cli.audit import audited
from ackwright.local.watch import Watch
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import KafkaSink
from ackwright_stream.reports import Verdict as AuditVerdict
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import Verdict, assert_nothing_hangs, job_of, judge, positions_of, read
from integration.support.two_clusters import TwoClusters
from waiting import ANSWER, WAIT, wait_until

PARTITIONS, EACH = 2, 100


@dataclass
class Pipeline(DriverLives):
    """One pipeline between two clusters, over several lives of its driver."""

    clusters: TwoClusters

    @property
    def sink(self) -> str:
        return str(self.spec.sink_of(KafkaSink).topic)

    def feed(self, count: int = EACH) -> None:
        super().feed(count)

    def positions(self) -> dict[int, int]:
        marker = self.clusters.marker_prefix + self.source
        return positions_of(self.clusters.sink.bootstrap_servers, self.spec.group, marker, self.partitions)

    def verdict(self) -> Verdict:
        """What a consumer of the tests reads from the sink's cluster, compared with what was fed."""
        return judge(read(self.clusters.sink.bootstrap_servers, self.sink), self.partitions, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        assert self.positions() == dict.fromkeys(range(self.partitions), self.fed)
        assert_nothing_hangs(self.clusters.sink.bootstrap_servers, self.sink)

    def copied_positions(self) -> list[int]:
        """The offsets of the group for lag tools, on the source's cluster."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": f"{self.spec.group}.lag"})
        try:
            lanes = [TopicPartition(self.source, p) for p in range(self.partitions)]
            return [x.offset for x in consumer.committed(lanes, timeout=ANSWER)]
        finally:
            consumer.close()


def pipeline(clusters: TwoClusters, directory: Path, guarantee: str, **more: Any) -> Pipeline:
    name = f"two-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    clusters.create_topics(source, sink, PARTITIONS)
    job = job_of(clusters.document(name, guarantee, source, sink, **more), directory)
    return Pipeline(clusters.source.bootstrap_servers, directory, job, PARTITIONS, clusters)


def test_driver_killed_between_two_clusters_exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    """Tasks and the driver are killed before and after the commit; then the audit reads both clusters."""
    p = pipeline(two_clusters, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        p.kill_tasks(job, "before-commit", "after-commit")
        hit = job.arm("before-commit", lane=f"{p.source}-0")  # the whole driver, in the middle of a batch
        p.feed()
        job.arrived(hit)
        job.job.kill()
    assert p.positions() != dict.fromkeys(range(PARTITIONS), p.fed)
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    p.assert_exactly_once()
    assert p.copied_positions() == [p.fed] * PARTITIONS
    with Watch() as watch:
        (report,) = audited([p.spec], tmp_path / "audit", watch)
    assert (report.verdict, report.sent, report.delivered) == (
        AuditVerdict.HELD,
        PARTITIONS * p.fed,
        PARTITIONS * p.fed,
    )


def test_a_zombie_driver_and_added_partitions_exactly_once(two_clusters: TwoClusters, tmp_path: Path) -> None:
    p = pipeline(two_clusters, tmp_path, "exactly-once")
    p.feed()
    with p.overtaken("before-commit", lane=f"{p.source}-0") as driver:
        p.assert_exactly_once()
        for kafka, topic in ((two_clusters.sink, p.sink), (two_clusters.source, p.source)):
            admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
            admin.create_partitions([NewPartitions(topic, PARTITIONS + 1)])[topic].result(ANSWER)
        before, p.partitions = p.fed, PARTITIONS + 1
        p.feed()
        expected = {0: p.fed, 1: p.fed, 2: p.fed - before}
        wait_until(lambda: p.positions() == expected, "the new partition is delivered", WAIT)
        p.drain(driver)
    records = read(two_clusters.sink.bootstrap_servers, p.sink)
    assert len(records) == len({r.value for r in records}) == PARTITIONS * p.fed + EACH


@pytest.mark.parametrize(
    ("guarantee", "point", "lost", "duplicated"),
    [
        ("at-least-once", "before-advance", {0}, PARTITIONS * EACH),
        # Spark cancels the other task, which may have claimed its range as well.
        ("at-most-once", "claimed", {EACH, PARTITIONS * EACH}, 0),
    ],
)
def test_the_other_guarantees_keep_their_order_between_two_clusters(
    two_clusters: TwoClusters, tmp_path: Path, *, guarantee: str, point: str, lost: set[int], duplicated: int
) -> None:
    """One process is killed between the two steps; a bounded run completes."""
    p = pipeline(two_clusters, tmp_path, guarantee, trigger={"availableNow": True})
    p.feed()
    p.complete_after_kill(point)
    verdict = p.verdict()
    assert verdict.lost in lost
    assert (verdict.duplicated, verdict.unexpected) == (duplicated, 0)
    assert p.positions() == dict.fromkeys(range(PARTITIONS), p.fed)
