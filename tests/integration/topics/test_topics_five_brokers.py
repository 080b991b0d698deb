"""Five brokers in three racks: conditions while brokers are lost, and placement of replicas.

Losing one broker more than tolerated takes five brokers, because three are also the quorum.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ackwright.cli import main
from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Cluster, ExitCode
from integration.support.managed_topics import Writer, matches_plan, observed_topic, pipeline, reconcile_until
from unit.world import World
from waiting import wait_until

RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}


@pytest.fixture(scope="module")
def five() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=5, racks=RACKS) as cluster:
        yield cluster


def test_one_lost_broker_is_tolerated_and_a_second_stops_writes_until_it_returns(five: EmbeddedKafka) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 3, {"min.insync.replicas": "2"})
    world = World(pipeline(name, partitions=1), client)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    (partition,) = observed_topic(client, name).layout
    first, second = (five.broker(b) for b in partition.replicas if b != partition.leader)
    with Writer(five.bootstrap_servers, name) as writer:
        try:
            first.kill()
            reconcile_until(
                world, lambda: world.condition("TopicsReady") == "True/UnderReplicated", "the loss is reported"
            )
            assert world.conditions("GuaranteeMet", "Ready") == ["True/Met", "True/Delivering"]
            writer.wait_for_more()
            assert writer.refused == []
            second.kill()
            reconcile_until(
                world,
                lambda: world.condition("GuaranteeMet") == "False/NotEnoughReplicas",
                "the broken clause is reported",
            )
            wait_until(lambda: writer.refused, "writes are refused")
        finally:
            first.start()
            second.start()
            five.wait_until_in_sync(120)
        reconcile_until(
            world,
            lambda: world.condition("Ready") == "True/Delivering" and matches_plan(world)(),
            "it recovers without help",
        )
        writer.wait_for_more()


def test_a_pipeline_that_tolerates_nothing_loses_its_topic_with_the_broker(five: EmbeddedKafka) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 1, {"min.insync.replicas": "1"})
    world = World(pipeline(name, f=0, partitions=1), client)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    broker = five.broker(observed_topic(client, name).layout[0].replicas[0])
    broker.kill()
    try:
        reconcile_until(world, lambda: world.condition("GuaranteeMet") == "False/NoLeader", "it is reported")
    finally:
        broker.start()
        five.wait_until_in_sync(120)
    reconcile_until(world, lambda: world.condition("Ready") == "True/Delivering", "it recovers without help")


def test_added_replicas_are_spread_over_the_racks_and_within_them(five: EmbeddedKafka) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    assert client.racks() == RACKS
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 6, 1, {"min.insync.replicas": "1"})
    wait_until(lambda: client.topics([name]), "the topic is there")
    assert client.reassign(name, {n: (1 + n % 2,) for n in range(6)}) is Outcome.DONE  # all in rack a
    world = World(pipeline(name, partitions=6), client)
    reconcile_until(world, matches_plan(world), "the topic is as planned")
    layout = observed_topic(client, name).layout
    assert [sorted(str(RACKS[b]) for b in p.replicas) for p in layout] == [["a", "b", "c"]] * 6
    assert Counter(b for p in layout for b in p.replicas) == {1: 3, 2: 3, 3: 3, 4: 3, 5: 6}


def test_replicas_in_one_rack_are_reported_until_one_is_moved(
    five: EmbeddedKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Kafka(Cluster(five.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 2, {"min.insync.replicas": "1"})
    wait_until(lambda: client.topics([name]), "the topic is there")
    world = World(pipeline(name, f=0, partitions=1, replicationFactor=2), client)
    file = tmp_path / "pipeline.yaml"
    spec = {
        **world.resource["spec"],
        "kafka": {"bootstrapServers": five.bootstrap_servers},
        "transform": {"sql": "SELECT value FROM source"},  # check judges it, too
    }
    file.write_text(yaml.safe_dump({**world.resource, "spec": spec}))

    def verdict() -> tuple[str, str]:
        capsys.readouterr()
        assert main.invoke(["check", "-f", str(file), "-o", "json"]) == ExitCode.OK
        check = {c["name"]: c for c in json.loads(capsys.readouterr().out)}[f"topic {name}"]
        return check["verdict"], check["found"]

    def placed(*brokers: int) -> bool:
        return [set(p.replicas) for p in observed_topic(client, name).layout] == [set(brokers)] and not client.moving()

    client.reassign(name, {0: (3, 4)})
    wait_until(lambda: placed(3, 4), "both replicas are in rack b")
    reconcile_until(world, lambda: world.condition("TopicsReady") == "True/OneRack", "it is reported")
    assert world.conditions("GuaranteeMet", "Ready") == ["True/Met", "True/Delivering"], "nothing is broken yet"
    assert name in next(c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "TopicsReady")
    assert verdict() == (
        "warning",
        f"topic {name}: all replicas of some partitions are in one rack, and are lost with it",
    )
    client.reassign(name, {0: (3, 5)})
    wait_until(lambda: placed(3, 5), "one is in another rack")
    reconcile_until(world, matches_plan(world), "nothing is reported any more")
    assert verdict() == ("ok", "is as planned")
