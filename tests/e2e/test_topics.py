"""Topics while a pipeline delivers: replicas added, settings changed by hand, brokers lost one after the other, a topic made anew."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka.admin import NewTopic

from ackwright.clients.kafka import Kafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Cluster
from e2e.command_line import ackwright
from e2e.pipelines import Installation, Pipeline, pipeline, wait_until

FLIGHTS = 20_000


def clean(p: Pipeline, directory: Path) -> None:
    p.wait_until_delivered()
    verdict = p.audit(directory)
    assert verdict["exitCode"] == 0, verdict


def topic(p: Pipeline, name: str) -> dict[str, int]:
    found: dict[str, int] = next(t for t in p.status()["topics"] if t["name"] == name)
    return found


def test_weak_topics_are_adopted_and_made_strong_while_records_flow(installed: Installation, tmp_path: Path) -> None:
    with pipeline(installed, "exactly-once", create=False) as p:
        weak = [NewTopic(name, 3, 1, config={"min.insync.replicas": "1"}) for name in (p.source, p.sink)]
        admin = AdminClient({"bootstrap.servers": installed.kafka})  # a name of its own: the futures end with it
        for future in admin.create_topics(weak, operation_timeout=30).values():
            future.result(30)
        p.feed(FLIGHTS)
        p.apply()
        p.wait_for("Ready", "True", "Delivering")
        for name in (p.source, p.sink):
            found = topic(p, name)
            assert (found["replicationFactor"], found["minInsyncReplicas"], found["inSyncReplicas"]) == (3, 2, 3)
        clean(p, tmp_path)


def test_what_is_changed_by_hand_is_set_back_and_brokers_lost_are_told(installed: Installation, tmp_path: Path) -> None:
    brokers = installed.cluster.brokers
    kafka = Kafka(Cluster(installed.kafka))
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("Ready", "True", "Delivering")
        kafka.configure("TOPIC", p.sink, {"min.insync.replicas": "1"})
        wait_until(lambda: kafka.topic_configs([p.sink])[p.sink]["min.insync.replicas"] == "2", "it is set back", 90)

        p.feed(FLIGHTS)
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
        clean(p, tmp_path)


def test_a_source_made_anew_waits_for_a_person(installed: Installation, tmp_path: Path) -> None:
    kafka = Kafka(Cluster(installed.kafka))
    with pipeline(installed, "exactly-once") as p:
        p.wait_for("TopicsReady", "True")
        p.feed(2_000)
        p.wait_until_delivered()
        p.apply(suspend=True)  # a driver that runs would end by itself
        p.wait_for("Ready", "False", "Suspended")
        kafka.delete_topic(p.source)
        wait_until(lambda: not kafka.topics([p.source]), "the topic is gone", 30)
        kafka.create_topic(p.source, 3, 3, {"min.insync.replicas": "2"})
        p.feed(FLIGHTS)
        p.apply(suspend=False)
        p.wait_for("Stalled", "True", "TopicReplaced")
        assert p.driver() is None
        ackwright(installed, "accept-topic", p.name, p.source)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered()
