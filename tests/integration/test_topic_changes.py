"""Topics brought to what is declared, on real brokers, by the operator's own looks; its Kubernetes is in memory. Records are written all
the while, with acks=all: none may be refused, lost or doubled."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright.observe.topics import topics
from ackwright.planning.comparison import ObservedTopic
from ackwright.settings import OperatorSettings
from ackwright_stream.jobspec import Cluster
from integration.conftest import NewTopicName
from unit.world import SPEC, World
from waiting import wait_until

SLOW = 100_000  # bytes a second and broker
CUT_OFF_MS = 8000  # a record that is not taken for so long counts as refused
THROTTLES = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


class Writer:
    """Writes numbers to a topic, one after the other, until it is told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "message.timeout.ms": CUT_OFF_MS}
        )
        self._topic, self._padding, self._bootstrap = topic, b"x" * 100, bootstrap
        self.acknowledged: Counter[int] = Counter()
        self.refused: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        wait_until(lambda: sum(self.acknowledged.values()) > 50, "records are taken", 60)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def more(self) -> None:
        """Waits until further records have been taken."""
        before = sum(self.acknowledged.values())
        wait_until(lambda: sum(self.acknowledged.values()) > before + 50, "further records are taken", 60)

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.005):
            for _ in range(5):
                self._producer.produce(self._topic, b"%d " % number + self._padding, str(number).encode(), on_delivery=self._told)
                number += 1
            self._producer.poll(0)
        self._producer.flush(30)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error:
            self.refused.append(error.str())
        else:
            self.acknowledged[int(message.key() or b"-1")] += 1

    def assert_all_there_once(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
        consumer.subscribe([self._topic])
        found: Counter[int] = Counter()
        try:

            def all_there() -> bool:
                for message in consumer.consume(5000, 0.2):
                    assert message.error() is None, message.error()
                    found[int(message.key() or b"-1")] += 1
                return found.total() >= self.acknowledged.total()

            wait_until(all_there, "everything that was acknowledged is read", 60)
        finally:
            consumer.close()
        assert self.refused == []
        assert found == self.acknowledged


@pytest.fixture
def client(kafka: EmbeddedKafka) -> Kafka:
    return Kafka(Cluster(kafka.bootstrap_servers))


def pipeline(topic: str, *, f: int = 1, partitions: int = 2, **declared: Any) -> dict[str, Any]:
    """The topic is the source, and the only one that is declared."""
    more = {"tolerate": {"brokerFailures": f}, "source": {"topics": [topic]}}
    return {**SPEC, **more, "sink": {"kafka": {"topic": topic + "-out"}}, "topics": [*declared_topics(topic, partitions, declared)]}


def declared_topics(topic: str, partitions: int, declared: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"name": topic, "partitions": partitions, **declared}
    yield {"name": f"{topic}-out", "partitions": 1}


def look_until(world: World, condition: Callable[[], Any], what: str) -> None:
    def looked() -> bool:
        world.seconds += OperatorSettings().resync
        world.look()
        return bool(condition())

    try:
        wait_until(looked, what, 120, 0.3)
    except AssertionError as e:
        raise AssertionError(f"{e}; {world.resource.get('status')}") from None


def as_planned(world: World) -> Callable[[], bool]:
    return lambda: (
        world.condition("TopicsReady") == "True/AsPlanned" and not any("throttledBrokers" in t for t in world.resource["status"]["topics"])
    )


def seen(client: Kafka, topic: str) -> ObservedTopic:
    client.racks()  # as the operator does: the first call finds the controller, if it has moved
    return topics(client, [topic])[topic]


def not_throttled(client: Kafka, topic: str) -> bool:
    rates = [name for b in client.brokers() for name in client.broker_config(b) if name.endswith("replication.throttled.rate")]
    return not rates and not any(seen(client, topic).config.get(name) for name in THROTTLES)


def test_a_topic_is_made_to_survive_the_loss_of_a_broker_while_it_is_written_to(
    kafka: EmbeddedKafka, client: Kafka, topic: NewTopicName
) -> None:
    name = topic(partitions=2, replicas=1, config={"min.insync.replicas": "1"})
    world = World(pipeline(name), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        look_until(world, as_planned(world), "the topic is as planned")
        writer.more()
    found = seen(client, name)
    assert (found.replication_factor, found.in_sync, found.min_insync) == (3, 3, 2)
    assert not_throttled(client, name)
    writer.assert_all_there_once()


def test_replicas_are_given_up_while_it_is_written_to(kafka: EmbeddedKafka, client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2, replicas=3, config={"min.insync.replicas": "2"})
    world = World(pipeline(name, f=0, replicationFactor=2, config={"min.insync.replicas": "2"}), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        look_until(world, as_planned(world), "the topic is as planned")
        writer.more()
    assert [len(p.replicas) for p in seen(client, name).layout] == [2, 2]
    writer.assert_all_there_once()


def test_a_broker_that_is_lost_while_replicas_are_copied_is_done_without(
    fragile_kafka: EmbeddedKafka,
) -> None:
    kafka = fragile_kafka
    client = Kafka(Cluster(kafka.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 1, {"min.insync.replicas": "1"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(3000):
        producer.produce(name, b"x" * 1000)
    producer.flush(60)
    world = World(pipeline(name, f=0, partitions=1, replicationFactor=2), client)
    world.settings = OperatorSettings(replication_rate=SLOW)
    world.start_operator()
    look_until(world, client.moving, "a replica is being copied")
    assert world.resource["status"]["topics"][0]["throttledBrokers"]
    (going,) = client.moving()[name, 0].adding
    kafka.broker(going).kill()
    try:
        look_until(world, lambda: going not in {b for r in client.moving().values() for b in r.adding}, "it is copied elsewhere")
        world.settings = OperatorSettings()
        world.start_operator()
        look_until(world, lambda: seen(client, name).in_sync == 2, "the copy is in sync")
        assert going not in seen(client, name).layout[0].replicas
    finally:
        kafka.broker(going).start()
        kafka.wait_until_in_sync(120)
    look_until(world, as_planned(world), "the topic is as planned")
    assert not_throttled(client, name)


def test_the_minimum_waits_for_replicas_in_sync_else_writers_are_cut_off(fragile_kafka: EmbeddedKafka) -> None:
    """Brokers take a minimum above the number of replicas for that number: only replicas that lag show the difference."""
    kafka = fragile_kafka
    client = Kafka(Cluster(kafka.bootstrap_servers))
    name = f"t-{uuid.uuid4().hex[:10]}"
    client.create_topic(name, 1, 2, {"min.insync.replicas": "1"})
    wait_until(lambda: client.topics([name]) and seen(client, name).in_sync == 2, "the topic is in sync", 60)
    (partition,) = seen(client, name).layout
    follower = next(b for b in partition.replicas if b != partition.leader)
    world = World(pipeline(name, f=0, partitions=1, replicationFactor=2, config={"min.insync.replicas": "2"}), client)
    with Writer(kafka.bootstrap_servers, name) as writer:
        kafka.broker(follower).kill()
        try:
            wait_until(lambda: seen(client, name).in_sync == 1, "the follower is out of sync", 60)
            look_until(world, lambda: "becomes 2 when 2 replicas" in str(world.resource["status"]), "the operator waits")
            writer.more()
            assert writer.refused == []
            client.configure("TOPIC", name, {"min.insync.replicas": "2"})  # the negative control
            wait_until(lambda: writer.refused, "writers are cut off", 60)
        finally:
            kafka.broker(follower).start()
            kafka.wait_until_in_sync(120)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("retention.ms", "1000000"), ("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true"), ("cleanup.policy", "compact")],
)
def test_what_is_changed_by_hand_is_set_back(client: Kafka, topic: NewTopicName, setting: str, value: str) -> None:
    name = topic(partitions=2)
    world = World(pipeline(name, config={"retention.ms": "604800000", "cleanup.policy": "delete"}), client)
    look_until(world, as_planned(world), "the topic is as planned")
    client.configure("TOPIC", name, {setting: value, "segment.ms": "3600000"})
    look_until(world, lambda: as_planned(world)() and seen(client, name).config[setting] != value, "it is set back")
    assert seen(client, name).config["segment.ms"] == "3600000", "what is not declared is left alone"


def test_what_brokers_refuse_is_told_and_nothing_is_applied_by_halves(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2, config={"min.insync.replicas": "1"})
    world = World(pipeline(name, config={"retention.ms": "soon"}), client)
    look_until(world, lambda: world.condition("Stalled").startswith("True/"), "it is told")
    message = next(c["message"] for c in world.resource["status"]["conditions"] if c["type"] == "Stalled")
    assert "retention.ms" in message
    assert "soon" in message
    assert seen(client, name).min_insync == 1
    assert not client.topics([f"{name}-out"])


def test_partitions_are_added_and_never_taken_away(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = World(pipeline(name, partitions=4), client)
    look_until(world, as_planned(world), "the topic is as planned")
    assert seen(client, name).partitions == 4
    world.kubernetes.stored["DeliveryPipeline", "p"]["spec"]["topics"][0]["partitions"] = 3
    look_until(world, lambda: world.condition("Stalled") == "True/TopicsUnfit", "that is told")
    assert seen(client, name).partitions == 4


def test_a_topic_that_was_made_anew_pauses_the_pipeline(client: Kafka, topic: NewTopicName) -> None:
    name = topic(partitions=2)
    world = World(pipeline(name), client)
    look_until(world, lambda: world.condition("Ready") == "True/Delivering", "the pipeline delivers")
    client.delete_topic(name)
    wait_until(lambda: not client.topics([name]), "the topic is gone", 30)
    client.create_topic(name, 2, 3, {"min.insync.replicas": "2"})
    look_until(world, lambda: world.condition("Stalled") == "True/TopicReplaced", "that is told")
    assert world.kubernetes.stored["StatefulSet", "p"]["spec"]["replicas"] == 0
