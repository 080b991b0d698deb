"""What is said of a pipeline while brokers are lost: one more than it tolerates takes five of them, for three are the quorum as well."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Cluster
from integration.kept_topics import Writer, as_planned, look_until, pipeline, seen
from unit.world import World
from waiting import wait_until


@pytest.fixture(scope="module")
def five() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=5) as cluster:
        yield cluster


def test_one_lost_broker_is_tolerated_and_one_more_stops_writes_until_it_is_back(five: EmbeddedKafka) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 3, {"min.insync.replicas": "2"})
    world = World(pipeline(name, partitions=1), client)
    look_until(world, as_planned(world), "the topic is as planned")
    (partition,) = seen(client, name).layout
    first, second = (five.broker(b) for b in partition.replicas if b != partition.leader)
    with Writer(five.bootstrap_servers, name) as writer:
        try:
            first.kill()
            look_until(world, lambda: world.condition("TopicsReady") == "True/UnderReplicated", "the loss is told")
            assert world.conditions("GuaranteeMet", "Ready") == ["True/Met", "True/Delivering"]
            writer.more()
            assert writer.refused == []
            second.kill()
            look_until(world, lambda: world.condition("GuaranteeMet") == "False/NotEnoughReplicas", "the broken clause is told")
            wait_until(lambda: writer.refused, "writes are refused", 60)
        finally:
            first.start()
            second.start()
            five.wait_until_in_sync(120)
        look_until(world, lambda: world.condition("Ready") == "True/Delivering" and as_planned(world)(), "it heals by itself")
        writer.more()


def test_a_pipeline_that_tolerates_nothing_loses_its_topic_with_the_broker(five: EmbeddedKafka) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 1, {"min.insync.replicas": "1"})
    world = World(pipeline(name, f=0, partitions=1), client)
    look_until(world, as_planned(world), "the topic is as planned")
    broker = five.broker(seen(client, name).layout[0].replicas[0])
    broker.kill()
    try:
        look_until(world, lambda: world.condition("GuaranteeMet") == "False/NoLeader", "that is told")
    finally:
        broker.start()
        five.wait_until_in_sync(120)
    look_until(world, lambda: world.condition("Ready") == "True/Delivering", "it heals by itself")
