"""Topics changed to match their declaration, on real brokers, by the operator's reconcile loop.

Kubernetes is in memory. A producer with acks=all writes all the time: no record may be refused, lost or duplicated.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from typing import Any, cast

import pytest

from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.local.kafka import EmbeddedKafka
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Cluster
from integration.support.managed_topics import (
    Writer,
    assert_not_throttled,
    matches_plan,
    not_throttled,
    observed_topic,
    pipeline,
    reconcile_until,
)
from integration.support.new_topics import NewTopicName
from integration.support.produce import produce
from unit.fake_kafka import FakeConnections
from unit.fake_kubernetes import Killed
from unit.world import World
from waiting import wait_until

SLOW = 100_000  # bytes a second and broker


@pytest.fixture
def client(kafka: EmbeddedKafka) -> Kafka:
    return Kafka(Cluster(kafka.bootstrap_servers))


def test_replicas_are_added_without_interrupting_writers(
    kafka: EmbeddedKafka, client: Kafka, topic: NewTopicName
) -> None:
    name = topic(partitions=2, replicas=1, config={"min.insync.replicas": "1"})
    world = World(pipeline(name), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        reconcile_until(world, matches_plan(world), "the topic is as planned")
        writer.wait_for_more()
    observed = observed_topic(client, name)
    assert (observed.replication_factor, observed.in_sync, observed.min_insync) == (3, 3, 2)
    assert_not_throttled(client, name)
    writer.assert_all_delivered_once()


def test_replicas_are_removed_without_interrupting_writers(
    kafka: EmbeddedKafka, client: Kafka, topic: NewTopicName
) -> None:
    name = topic(partitions=2, replicas=3, config={"min.insync.replicas": "2"})
    world = World(pipeline(name, f=0, replicationFactor=2, config={"min.insync.replicas": "2"}), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        reconcile_until(world, matches_plan(world), "the topic is as planned")
        writer.wait_for_more()
    assert [len(p.replicas) for p in observed_topic(client, name).layout] == [2, 2]
    writer.assert_all_delivered_once()


def test_a_broker_lost_while_it_receives_replicas_is_replaced(
    fragile_kafka: EmbeddedKafka,
) -> None:
    kafka = fragile_kafka
    client = Kafka(Cluster(kafka.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 1, {"min.insync.replicas": "1"})
    produce(kafka.bootstrap_servers, name, *[b"x" * 1000] * 3000)
    world = World(pipeline(name, f=0, partitions=1, replicationFactor=2), client)
    world.settings = OperatorSettings(replication_rate=SLOW)
    world.start_operator()
    reconcile_until(world, client.moving, "a replica is being copied")
    assert world.resource["status"]["topics"][0]["throttledBrokers"]
    (going,) = client.moving()[name, 0].adding
    kafka.broker(going).kill()
    try:
        reconcile_until(
            world,
            lambda: going not in {b for r in client.moving().values() for b in r.adding},
            "it is copied elsewhere",
        )
        world.settings = OperatorSettings()
        world.start_operator()
        reconcile_until(world, lambda: observed_topic(client, name).in_sync == 2, "the copy is in sync")
        assert going not in observed_topic(client, name).layout[0].replicas
    finally:
        kafka.broker(going).start()
        kafka.wait_until_in_sync(120)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    assert_not_throttled(client, name)


def test_the_minimum_waits_for_replicas_in_sync_else_writers_are_cut_off(fragile_kafka: EmbeddedKafka) -> None:
    """Brokers cap min.insync.replicas at the number of replicas, so only lagging replicas show the difference."""
    kafka = fragile_kafka
    client = Kafka(Cluster(kafka.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 2, {"min.insync.replicas": "1"})
    wait_until(lambda: observed_topic(client, name).in_sync == 2, "the topic is in sync")
    (partition,) = observed_topic(client, name).layout
    follower = next(b for b in partition.replicas if b != partition.leader)
    world = World(pipeline(name, f=0, partitions=1, replicationFactor=2, config={"min.insync.replicas": "2"}), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        kafka.broker(follower).kill()
        try:
            wait_until(lambda: observed_topic(client, name).in_sync == 1, "the follower is out of sync")
            reconcile_until(
                world,
                lambda: "is raised to 2 once each partition has 2 replicas" in str(world.resource["status"]),
                "the operator waits",
            )
            writer.wait_for_more()
            assert writer.refused == []
            client.configure("TOPIC", name, {"min.insync.replicas": "2"})  # the negative control
            wait_until(lambda: writer.refused, "writers are cut off")
        finally:
            kafka.broker(follower).start()
            kafka.wait_until_in_sync(120)


def test_a_pipeline_that_is_deleted_while_replicas_are_copied_leaves_no_throttle(
    kafka: EmbeddedKafka, client: Kafka, topic: NewTopicName
) -> None:
    name = topic(partitions=1, replicas=1, config={"min.insync.replicas": "1"})
    produce(kafka.bootstrap_servers, name, *[b"x" * 1000] * 500)
    world = World(pipeline(name, partitions=1), client)
    world.settings = OperatorSettings(replication_rate=SLOW)
    world.start_operator()
    reconcile_until(world, client.moving, "replicas are being copied")
    wait_until(lambda: not not_throttled(client, name), "the throttle is set")
    world.resource["metadata"]["deletionTimestamp"] = world.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    def gone() -> bool:
        if ("DeliveryPipeline", "p") in world.kubernetes.stored:
            world.reconcile()
        return ("DeliveryPipeline", "p") not in world.kubernetes.stored

    world.seconds_between = 0.5
    wait_until(gone, "the pipeline is gone", pause=0.3)
    assert_not_throttled(client, name)
    assert observed_topic(client, name).in_sync == 3, "the reassignment has ended"


def test_a_refused_setting_is_reported_and_no_part_of_the_change_is_applied(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2, config={"min.insync.replicas": "1"})
    world = World(pipeline(name, config={"retention.ms": "soon"}), client)
    reconcile_until(world, lambda: world.condition("Stalled").startswith("True/"), "it is reported")
    message = next(c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "Stalled")
    assert "retention.ms" in message
    assert "soon" in message
    assert observed_topic(client, name).min_insync == 1
    assert not client.topics([f"{name}-out"])


def test_partitions_are_added_and_never_removed(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = World(pipeline(name, partitions=4), client)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    assert observed_topic(client, name).partitions == 4
    world.kubernetes.stored["DeliveryPipeline", "p"]["spec"]["topics"][0]["partitions"] = 3
    reconcile_until(world, lambda: world.condition("Stalled") == "True/TopicsUnfit", "it is reported")
    assert observed_topic(client, name).partitions == 4


def test_a_recreated_topic_pauses_the_pipeline(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = World(pipeline(name), client)
    reconcile_until(world, lambda: world.condition("Ready") == "True/Delivering", "the pipeline delivers")
    client.delete_topic(name)
    wait_until(lambda: not client.topics([name]), "the topic is gone")
    client.create_topic(name, 2, 3, {"min.insync.replicas": "2"})
    reconcile_until(world, lambda: world.condition("Stalled") == "True/TopicReplaced", "it is reported")
    assert world.kubernetes.stored["StatefulSet", "p"]["spec"]["replicas"] == 0


class Mortal:
    """A connection that allows a number of writes; the next one kills its operator."""

    def __init__(self, kafka: Kafka, writes: int) -> None:
        self._kafka, self.left = kafka, writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    def create_topic(self, *arguments: Any, validate_only: bool = False) -> Outcome:
        return self._counted(self._kafka.create_topic(*arguments, validate_only=validate_only), validate_only)

    def configure(self, *arguments: Any, validate_only: bool = False) -> Outcome:
        return self._counted(self._kafka.configure(*arguments, validate_only=validate_only), validate_only)

    def add_partitions(self, *arguments: Any, validate_only: bool = False) -> Outcome:
        return self._counted(self._kafka.add_partitions(*arguments, validate_only=validate_only), validate_only)

    def reassign(self, name: str, moves: Mapping[int, tuple[int, ...]]) -> Outcome:
        return self._counted(self._kafka.reassign(name, moves), not moves)

    def _counted(self, outcome: Outcome, only_tried: bool) -> Outcome:
        self.left -= not only_tried
        if self.left < 0:
            raise Killed
        return outcome


def test_an_operator_killed_after_any_write_has_a_successor_that_reaches_the_same_state(
    client: Kafka, topic: NewTopicName
) -> None:
    for writes in itertools.count():
        name = topic(partitions=2, replicas=1, config={"min.insync.replicas": "1"})
        world = World(pipeline(name, partitions=3), Mortal(client, writes))
        try:
            reconcile_until(world, matches_plan(world), "the topic is as planned")
            break  # there were not so many writes
        except Killed:
            world.connections = FakeConnections(cast(Any, client))
            world.start_operator()
        reconcile_until(world, matches_plan(world), f"the topic is as planned, after {writes} writes and a death")
        observed = observed_topic(client, name)
        assert (observed.partitions, observed.replication_factor, observed.in_sync, observed.min_insync) == (
            3,
            3,
            3,
            2,
        ), writes
        assert_not_throttled(client, name)
    assert writes > 10
