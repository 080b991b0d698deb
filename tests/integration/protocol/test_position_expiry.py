"""Positions expire once their group has no member; a live driver's stay, however long its lanes are idle.

It supports docs/protocol.md#rule-5. The broker is the module's own, with a retention of one minute, the shortest
possible.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Cluster
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.sink import TopicSink, for_driver
from integration.support.members import end_membership
from integration.support.pipelines import LANES as LANES_TOPIC
from integration.support.pipelines import document, job_of, positions_of
from minimal_job import with_member
from waiting import ANSWER, wait_until

RETENTION = 60  # seconds
TOPIC = "expiry"
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "3000"}
LANES = [Lane(TOPIC, 0), Lane(TOPIC, 1)]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[str]:
    with EmbeddedKafka(tmp_path, brokers=1, overrides=SETTINGS) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        created = admin.create_topics([NewTopic(TOPIC, 2, 1), NewTopic(LANES_TOPIC, 1, 1)])
        for answer in created.values():
            answer.result(ANSWER)
        yield kafka.bootstrap_servers


def pipeline(servers: str, directory: Path, name: str) -> JobSpec:
    job = job_of(document(servers, name, "exactly-once", TOPIC, "out", tolerate={"brokerFailures": 0}), directory)
    return with_member(job, session_timeout_ms="6000")


def driver(job: JobSpec) -> tuple[TopicSink, Lanes]:
    """A driver that has joined and committed its lanes once."""
    cluster = Cluster(job)
    sink = for_driver(job, cluster)
    lanes = Lanes(job, sink, sink.join(LANES), 1, cluster.topology().topic_ids)
    lanes.settle(dict.fromkeys(LANES, 0), [], None, ())
    return sink, lanes


def test_rule_05_idle_lanes_stay_while_the_driver_is_a_member_and_expire_without_one(
    servers: str, tmp_path: Path
) -> None:
    jobs = {name: pipeline(servers, tmp_path, name) for name in ("live", "ended")}
    live, lanes = driver(jobs["live"])
    ended, lanes_of_ended = driver(jobs["ended"])
    started = time.monotonic()

    def positions(name: str) -> dict[int, int]:
        return positions_of(servers, jobs[name].group, TOPIC, 2)

    assert ended._member is not None
    end_membership(ended._member)
    # Its session has not ended yet. A fresh commit does not help: the clock of the group runs from the end of it.
    lanes_of_ended.advance_all([Range(LANES[0], 0, 1)])
    assert positions("ended") == {0: 1, 1: 0}
    wait_until(lambda: not positions("ended"), "the positions of the group without a member expire", 3 * RETENTION)
    assert time.monotonic() - started > RETENTION
    assert positions("live") == {0: 0, 1: 0}  # committed at the same time
    assert live.is_member()
    lanes.advance_all([Range(LANES[0], 0, 1)])
    assert positions("live") == {0: 1, 1: 0}
