"""Topics changed while a job delivers between them: no record is lost, duplicated or refused.

The job is complete, on real brokers with its own Spark; the operator's Kubernetes is in memory. The control is in
test_topic_changes.py: with min.insync.replicas raised before the replicas, writers are refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import Cluster, ExitCode
from ackwright_stream.reports import Verdict
from integration.support.managed_topics import (
    Writer,
    assert_not_throttled,
    matches_plan,
    observed_topic,
    reconcile_until,
)
from integration.support.new_topics import NewTopicName
from integration.support.pipelines import Watcher, assert_nothing_hangs, create_topics, document, job_of, read, running
from integration.support.spark_local import session
from unit.world import World
from waiting import WAIT, wait_until

PARTITIONS = 2
STRICT = {
    "replicationFactor": 2,
    "config": {"min.insync.replicas": "2"},
}  # of three replicas one goes, and no other may lag


def all_are(client: Kafka, names: Sequence[str], numbers: tuple[int, int, int]) -> bool:
    """Whether each topic has these numbers of replicas, in-sync replicas and min.insync.replicas."""
    topics = [observed_topic(client, name) for name in names]
    return all((t.replication_factor, t.in_sync, t.min_insync) == numbers for t in topics)


def has_grown(delivered: Callable[[], int], before: int, _: Mapping[str, Any]) -> bool:
    return delivered() > before


def test_replicas_of_source_and_sink_are_added_and_removed_while_a_job_delivers(
    kafka: EmbeddedKafka, topic: NewTopicName, tmp_path: Path
) -> None:
    servers, client = kafka.bootstrap_servers, Kafka(Cluster(kafka.bootstrap_servers))
    create_topics(servers)  # the one for lanes
    names = [
        topic(name=n, partitions=PARTITIONS, replicas=1, config={"min.insync.replicas": "1"}) for n in ("in", "out")
    ]
    source, sink = names

    def declared(f: int, **more: Any) -> dict[str, Any]:
        topics = [{"name": n, "partitions": PARTITIONS, **more} for n in names]
        return document(servers, source, "exactly-once", source, sink, tolerate={"brokerFailures": f}, topics=topics)

    world = World(declared(1)["spec"], client)
    spec = job_of(declared(1), tmp_path)

    with Watcher(servers, spec.group, source, sink, PARTITIONS) as watcher, running(spec, tmp_path / "job") as job:

        def delivered() -> int:
            return sum(job.progress().get("positions", {}).get(source, {}).values())

        with Writer(servers, source, retry=False) as writer:
            job.until_position(PARTITIONS, 300)
            for numbers, more in (((3, 3, 2), {}), ((2, 2, 2), STRICT)):
                world.kubernetes.declare("p", declared(0 if more else 1, **more)["spec"])
                before = delivered()
                reconcile_until(
                    world, partial(all_are, client, names, numbers), f"replicas, in sync, minimum: {numbers}"
                )
                reconcile_until(world, matches_plan(world), "nothing is left to do")
                writer.wait_for_more()
                job.until(partial(has_grown, delivered, before), "the job continues")
        written = Counter(int(r.key or b"-1") for r in read(servers, source))
        job.until(lambda _: delivered() >= written.total(), "all is delivered")
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK
        wait_until(lambda: len(watcher.records) >= written.total(), "the concurrent reader has every record")
    assert writer.refused == []
    assert written == writer.acknowledged
    assert Counter(int(r.key or b"-1") for r in watcher.records) == written
    assert watcher.backwards == []
    report = audit(session(), spec)
    assert (report.lost, report.duplicated, report.unexpected, report.out_of_order) == (0, 0, 0, 0)
    assert (report.sent, report.verdict) == (written.total(), Verdict.HELD)
    assert_not_throttled(client, source)
    assert_nothing_hangs(servers, source, sink)
