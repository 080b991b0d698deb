"""An operator that lacks one permission on real brokers: it reports what it cannot do and does the rest."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.api.spec import parse
from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright.planning.acls import Operation
from ackwright.planning.permissions import Role
from ackwright.render.jobspec import cluster
from ackwright_stream.jobspec import Cluster
from integration.support.guarded import USERS, described, grant, guarded_brokers, required_permissions
from integration.support.managed_topics import assert_not_throttled, matches_plan, observed_topic, reconcile_until
from unit.world import World
from waiting import wait_until

DAY, WEEK = "86400000", "604800000"
CLUSTER = "kafka-cluster"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """Two brokers, so that a replica can be added."""
    with guarded_brokers(2) as brokers:
        yield brokers


@pytest.mark.parametrize(
    ("user", "lacks", "on_cluster"),
    [
        ("ann", Operation.ALTER, False),
        ("operator", Operation.ALTER_CONFIGS, False),
        ("job", Operation.ALTER, True),
        ("audit", Operation.ALTER_CONFIGS, True),
    ],
)
def test_a_missing_permission_is_named_and_delays_one_topic_only(
    guarded: EmbeddedKafka, tmp_path: Path, user: str, lacks: Operation, on_cluster: bool
) -> None:
    """Settings, replicas and partitions of the source differ. Each case has its own user, because grants remain."""
    assert user in USERS
    everybody, name = Kafka(Cluster(guarded.bootstrap_servers)), f"p-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    for topic, partitions in ((source, 2), (sink, 3)):
        everybody.create_topic(topic, partitions, 1, {"retention.ms": DAY, "min.insync.replicas": "1"})
    wait_until(lambda: len(everybody.topics([source, sink])) == 2, "the topics are there")
    pipeline = described(guarded, name, "exactly-once", user, tmp_path)
    pipeline["spec"]["source"]["groupId"] = f"ops.{name}"  # the world's pipeline has another name, and so another group
    pipeline["spec"]["topics"] = [
        {"name": source, "partitions": 3, "replicationFactor": 2, "config": {"retention.ms": WEEK}},
        {"name": sink, "partitions": 3, "config": {"retention.ms": WEEK}},
    ]
    everything = required_permissions(pipeline, Role.OPERATOR)
    grant(guarded, user, everything, but=(CLUSTER if on_cluster else source, lacks))
    client = Kafka(cluster(parse(pipeline).spec.kafka, str(tmp_path / "secrets")))
    world = World(pipeline["spec"], client)

    def message() -> str:
        return next(str(c["message"]) for c in world.resource["status"]["conditions"] if c["type"] == "Stalled")

    reconcile_until(
        world,
        lambda: (
            world.condition("Stalled") == "True/AuthorizationFailed"
            and observed_topic(everybody, sink).config["retention.ms"] == WEEK
        ),
        "it is reported, and the other topic is as declared",
    )
    assert f"grant the principal {lacks} on {'the cluster' if on_cluster else f'topic {source}'}" in message()
    assert source in message()
    world.settle()
    assert world.conditions("TopicsReady", "JobRunning") == ["False/AuthorizationFailed", "True/Running"]
    held_up = observed_topic(everybody, source)
    moves = not on_cluster and lacks is Operation.ALTER  # only the partitions, which come last, wait
    assert (held_up.partitions, held_up.replication_factor) == (2, 2 if moves else 1)
    assert held_up.config["retention.ms"] == (DAY if not on_cluster and lacks is Operation.ALTER_CONFIGS else WEEK)
    assert_not_throttled(everybody, source)
    grant(guarded, user, everything)
    reconcile_until(world, matches_plan(world), "it recovers without help")
    assert world.conditions("Stalled", "Ready") == ["False/NotStalled", "True/Delivering"]
    healed = observed_topic(everybody, source)
    assert (healed.partitions, healed.replication_factor, healed.config["retention.ms"]) == (3, 2, WEEK)
    assert_not_throttled(everybody, source)
