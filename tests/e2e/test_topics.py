"""Topics of a pipeline that delivers: replicas are added, settings changed, brokers lost, and a topic is recreated."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupState, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.clients.kafka import Kafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Cluster
from e2e.command_line import ackwright
from e2e.pipelines import NAMESPACE, Installation, Pipeline, pipeline, wait_until
from integration.support.members import alter_offsets, describe
from integration.support.pipelines import read

FLIGHTS = 20_000


def topic_status(p: Pipeline, name: str) -> dict[str, int]:
    status: dict[str, int] = next(t for t in p.status()["topics"] if t["name"] == name)
    return status


def test_existing_topics_get_replicas_while_records_are_delivered(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once", create=False) as p:
        weak = [NewTopic(name, 3, 1, config={"min.insync.replicas": "1"}) for name in (p.source, p.sink)]
        admin = AdminClient(
            {"bootstrap.servers": installed.kafka}
        )  # a variable, because the futures end with the client
        for future in admin.create_topics(weak, operation_timeout=30).values():
            future.result(30)
        p.produce_flights(FLIGHTS)
        p.apply()
        p.wait_for("Ready", "True", "Delivering")
        for name in (p.source, p.sink):
            status = topic_status(p, name)
            assert (status["replicationFactor"], status["minInsyncReplicas"], status["inSyncReplicas"]) == (3, 2, 3)
        p.wait_until_delivered_and_audit(tmp_path)


def test_manual_changes_are_reverted_and_lost_brokers_are_reported(installed: Installation, tmp_path: Path) -> None:
    brokers = installed.cluster.brokers
    kafka = Kafka(Cluster(installed.kafka))
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True", "Delivering")
        kafka.configure("TOPIC", p.sink, {"min.insync.replicas": "1"})
        wait_until(
            lambda: kafka.topic_configs([p.sink])[p.sink]["min.insync.replicas"] == "2", "the setting is restored", 90
        )

        p.produce_flights(FLIGHTS)
        brokers.broker(2).kill()
        try:
            p.wait_for("TopicsReady", "True", "UnderReplicated")
            p.wait_until_delivered()
            assert p.condition("GuaranteeMet")["status"] == "True", "one broker may be lost"
            brokers.broker(3).kill()
            try:
                p.wait_for("Ready", "False")
            finally:
                brokers.broker(3).start()
        finally:
            brokers.broker(2).start()
            brokers.wait_until_in_sync(120)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_for("TopicsReady", "True", "AsPlanned")
        p.wait_until_delivered_and_audit(tmp_path)


def test_a_recreated_source_waits_for_accept_topic(installed: Installation, tmp_path: Path) -> None:
    kafka = Kafka(Cluster(installed.kafka))
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(2_000)
        p.wait_until_delivered()
        p.apply(suspend=True)  # a running driver would end by itself
        p.wait_for("Ready", "False", "Suspended")
        kafka.delete_topic(p.source)
        wait_until(lambda: not kafka.topics([p.source]), "the topic is deleted", 30)
        kafka.create_topic(p.source, 3, 3, {"min.insync.replicas": "2"})
        p.produce_flights(FLIGHTS)
        p.apply(suspend=False)
        p.wait_for("Stalled", "True", "TopicReplaced")
        assert p.driver() is None
        ackwright(installed, "accept-topic", p.name, p.source)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered()


def test_moved_positions_wait_for_accept_positions(installed: Installation) -> None:
    admin = AdminClient({"bootstrap.servers": installed.kafka})
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(2_000)
        p.wait_until_delivered()
        delivered = len(read(installed.kafka, p.sink))
        p.apply(suspend=True)
        p.wait_for("Ready", "False", "Suspended")
        group, lanes = f"{NAMESPACE}.{p.name}", [TopicPartition(p.source, n) for n in range(3)]
        # Kept over the suspension, so that no pipeline of the same name in another cluster takes it for its own.
        settings = {"bootstrap.servers": installed.kafka, "group.id": group, "enable.auto.commit": False}
        recorded = {x.metadata.partition("pipeline=")[2].split()[0] for x in Consumer(settings).committed(lanes, 30)}
        assert {name.partition("/")[0] for name in recorded} == {
            installed.get("namespace", NAMESPACE)["metadata"]["uid"]
        }
        wait_until(
            lambda: describe(admin, group).state is ConsumerGroupState.EMPTY, "the driver's membership ends", 120
        )
        alter_offsets(admin, group, [TopicPartition(x.topic, x.partition, 0) for x in lanes])
        p.apply(suspend=False)
        p.wait_for("Stalled", "True", "PositionsMoved")
        assert len(read(installed.kafka, p.sink)) == delivered
        ackwright(installed, "accept-positions", p.name)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered()
        assert len(read(installed.kafka, p.sink)) == 2 * delivered > 0  # as if they had not been delivered before
