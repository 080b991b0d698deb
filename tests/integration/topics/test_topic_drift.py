"""Topics changed by hand on real brokers, under each driftPolicy: settings, replicas, partitions."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.local.kafka import EmbeddedKafka
from ackwright.planning.topic_steps import FOLLOWERS, LEADERS
from ackwright_stream.jobspec import Cluster
from integration.support.managed_topics import (
    assert_not_throttled,
    matches_plan,
    observed_topic,
    pipeline,
    reconcile_until,
)
from integration.support.new_topics import NewTopicName
from unit.world import World
from waiting import wait_until

UNMANAGED = "segment.ms"
# Every topic setting of these brokers: the declared value, and the value set by hand.
SETTINGS = {
    "cleanup.policy": ("delete", "compact"),
    "compression.gzip.level": ("6", "9"),
    "compression.lz4.level": ("9", "1"),
    "compression.type": ("producer", "lz4"),
    "compression.zstd.level": ("3", "7"),
    "delete.retention.ms": ("86400000", "1000"),
    "file.delete.delay.ms": ("60000", "1000"),
    "flush.messages": ("100000", "1"),
    "flush.ms": ("100000", "1"),
    "index.interval.bytes": ("4096", "64"),
    "local.retention.bytes": ("-2", "1048576"),
    "local.retention.ms": ("-2", "100000"),
    "max.compaction.lag.ms": ("9000000", "1000000"),
    "max.message.bytes": ("1048588", "100"),
    "message.timestamp.after.max.ms": ("3600000", "1"),
    "message.timestamp.before.max.ms": ("9223372036854775807", "1"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": ("0.5", "0.9"),
    "min.compaction.lag.ms": ("0", "1000"),
    "min.insync.replicas": ("2", "1"),
    "preallocate": ("false", "true"),
    "remote.log.copy.disable": ("false", "true"),
    "remote.log.delete.on.disable": ("false", "true"),
    "retention.bytes": ("1073741824", "1048576"),
    "retention.ms": ("604800000", "100000"),
    "segment.bytes": ("67108864", "1048576"),
    "segment.index.bytes": ("1048576", "4096"),
    "segment.jitter.ms": ("0", "1000"),
    "unclean.leader.election.enable": ("false", "true"),
}
# Throttles are the operator's; remote storage cannot be undone.
NOT_TESTED = {LEADERS, FOLLOWERS, UNMANAGED, "remote.storage.enable"}


@pytest.fixture
def client(kafka: EmbeddedKafka) -> Kafka:
    return Kafka(Cluster(kafka.bootstrap_servers))


@pytest.fixture
def settled_pipeline(client: Kafka, topic: NewTopicName) -> tuple[World, str]:
    """A pipeline whose topic has two partitions and is as planned."""
    name = topic(partitions=2)
    return settled(client, pipeline(name)), name


def settled(client: Kafka, spec: dict[str, Any]) -> World:
    world = World(spec, client)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    return world


def message(world: World, kind: str) -> str:
    return str(next(c["message"] for c in world.resource["status"]["conditions"] if c["type"] == kind))


def reassign_first_partition(client: Kafka, name: str, replicas: tuple[int, ...]) -> None:
    """Gives the first partition these replicas; returns when it has them and they are in sync."""
    assert client.reassign(name, {0: replicas}) is Outcome.DONE

    def done() -> bool:
        first = observed_topic(client, name).layout[0]
        return not client.moving() and set(first.replicas) == set(replicas) == first.in_sync

    wait_until(done, f"the replicas are {replicas}")


def test_every_setting_that_is_changed_by_hand_is_set_back(client: Kafka, topic: NewTopicName) -> None:
    declared = {name: value for name, (value, _) in SETTINGS.items()}
    name = topic(partitions=1)
    world = settled(client, pipeline(name, partitions=1, config=declared))
    assert observed_topic(client, name).config.keys() - NOT_TESTED == SETTINGS.keys(), (
        "there is a setting that this test does not know"
    )
    # One that is refused would hide all that come with it.
    for setting, (_, other) in SETTINGS.items():
        client.configure("TOPIC", name, {setting: other})
    client.configure("TOPIC", name, {UNMANAGED: "3600000"})
    assert {s: observed_topic(client, name).config[s] for s in SETTINGS} == {
        s: other for s, (_, other) in SETTINGS.items()
    }
    reconcile_until(world, matches_plan(world), "they are set back")
    config = observed_topic(client, name).config
    assert {s: config[s] for s in SETTINGS} == declared
    assert config[UNMANAGED] == "3600000", "what is not declared is left alone"


def test_a_setting_deleted_by_hand_is_set_again(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=1)
    world = settled(client, pipeline(name, partitions=1, config={"retention.ms": "1000000"}))
    client.configure("TOPIC", name, {"retention.ms": None})
    assert observed_topic(client, name).config["retention.ms"] != "1000000", "the brokers' own value is another"
    reconcile_until(world, matches_plan(world), "it is set again")
    assert observed_topic(client, name).config["retention.ms"] == "1000000"


def test_a_replica_removed_by_hand_is_restored(client: Kafka, settled_pipeline: tuple[World, str]) -> None:
    world, name = settled_pipeline
    reassign_first_partition(client, name, observed_topic(client, name).layout[0].replicas[:2])
    reconcile_until(
        world,
        lambda: matches_plan(world)() and observed_topic(client, name).in_sync == 3,
        "it has three replicas again",
    )
    assert_not_throttled(client, name)


def test_a_replica_added_by_hand_is_removed(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2, replicas=2, config={"min.insync.replicas": "1"})
    world = settled(client, pipeline(name, f=0, replicationFactor=2))
    first, second = observed_topic(client, name).layout
    reassign_first_partition(client, name, (*first.replicas, *({1, 2, 3} - set(first.replicas))))
    reconcile_until(
        world,
        lambda: matches_plan(world)() and len(observed_topic(client, name).layout[0].replicas) == 2,
        "it has two replicas again",
    )
    assert observed_topic(client, name).layout[1] == second


def test_a_partition_added_by_hand_is_reported_until_it_is_declared(
    client: Kafka, settled_pipeline: tuple[World, str]
) -> None:
    world, name = settled_pipeline
    client.add_partitions(name, 3)
    reconcile_until(world, lambda: world.condition("TopicsReady") == "False/TopicsUnfit", "it is reported")
    assert message(world, "TopicsReady") == (
        f"topic {name} has 3 partitions, the spec declares 2, and Kafka cannot remove partitions; "
        "declare partitions: 3, or recreate the topic"
    )
    assert world.conditions("GuaranteeMet", "JobRunning") == ["True/Met", "True/Running"], (
        "three partitions lose nothing"
    )
    assert world.resource["status"]["topics"][0]["partitions"] == 3
    world.kubernetes.stored["DeliveryPipeline", "p"]["spec"]["topics"][0]["partitions"] = 3
    reconcile_until(
        world, lambda: matches_plan(world)() and world.condition("Ready") == "True/Delivering", "it is as declared"
    )


def change_by_hand(client: Kafka, name: str) -> None:
    client.configure("TOPIC", name, {"retention.ms": "1000000", "min.insync.replicas": "1"})
    reassign_first_partition(client, name, observed_topic(client, name).layout[0].replicas[:2])


def revert(client: Kafka, name: str) -> None:
    client.configure("TOPIC", name, {"retention.ms": "604800000", "min.insync.replicas": "2"})
    reassign_first_partition(client, name, observed_topic(client, name).layout[1].replicas)


DIFFERENCES = (
    "retention.ms is 1000000, planned is 604800000",
    "min.insync.replicas is 1, planned is 2",
    "replication.factor is 2, planned is 3",
)


def test_under_alert_drift_is_reported_and_not_repaired(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = settled(
        client, pipeline(name, driftPolicy="alert", config={"retention.ms": "604800000", "min.insync.replicas": "2"})
    )
    change_by_hand(client, name)
    reconcile_until(world, lambda: all(d in message(world, "TopicsReady") for d in DIFFERENCES), "it is reported")
    assert world.condition("TopicsReady") == "True/Drifted"
    drifted = observed_topic(client, name)
    assert world.conditions("GuaranteeMet", "JobRunning") == ["False/TopicsTooWeak", "True/Running"]
    world.settle()
    assert observed_topic(client, name) == drifted
    revert(client, name)
    reconcile_until(
        world, lambda: matches_plan(world)() and world.condition("GuaranteeMet") == "True/Met", "it is as planned"
    )


def test_under_pause_the_job_stops_until_the_drift_is_reverted(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = settled(
        client, pipeline(name, driftPolicy="pause", config={"retention.ms": "604800000", "min.insync.replicas": "2"})
    )
    reconcile_until(world, lambda: world.condition("Ready") == "True/Delivering", "the pipeline delivers")
    change_by_hand(client, name)
    reconcile_until(world, lambda: all(d in message(world, "Stalled") for d in DIFFERENCES), "it is reported")
    assert world.condition("Stalled") == "True/Drifted"
    drifted = observed_topic(client, name)
    world.settle()
    assert world.conditions("TopicsReady", "JobRunning", "Ready") == ["True/Drifted", "False/Paused", "False/Drifted"]
    assert world.kubernetes.stored["StatefulSet", "p"]["spec"]["replicas"] == 0
    assert "Pod" not in world.kinds()
    assert observed_topic(client, name) == drifted
    revert(client, name)
    reconcile_until(world, lambda: world.condition("Ready") == "True/Delivering", "the pipeline delivers again")
    assert matches_plan(world)()
