"""The embedded cluster: it serves, survives failures of its brokers, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.errors import AckwrightError
from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright_stream.admin_client import AdminClient
from integration.support.members import describe
from integration.support.new_topics import create_topic
from integration.support.processes import naming
from waiting import ANSWER, wait_until


def produce(servers: str, topic: str, value: str, **settings: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "message.timeout.ms": 30_000, **settings})
    failures: list[object] = []
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(40) == 0
    assert failures == []


def values(servers: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    with contextlib.closing(consumer):
        return [m.value().decode() for m in consumer.consume(count, timeout=ANSWER) if m.error() is None]


def test_leaders_and_coordinators_are_brokers_of_the_cluster(kafka: EmbeddedKafka, admin: AdminClient) -> None:
    name = create_topic(admin, partitions=3)
    assert {kafka.leader(name, p).node for p in range(3)} <= {1, 2, 3}
    assert kafka.coordinator("some-group").node == describe(admin, "some-group").coordinator.id


def test_acknowledged_records_survive_a_killed_broker(fragile_kafka: EmbeddedKafka) -> None:
    kafka = fragile_kafka
    topic = create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}))
    produce(kafka.bootstrap_servers, topic, "before")
    victim = kafka.leader(topic, 0)
    address = victim.address
    victim.kill()
    assert not victim.alive
    wait_until(lambda: kafka.leader(topic, 0).node != victim.node, "another broker leads")
    produce(kafka.bootstrap_servers, topic, "after")
    victim.start()
    assert victim.address == address
    kafka.wait_until_in_sync()
    assert values(kafka.bootstrap_servers, topic, 2) == ["before", "after"]


def test_a_suspended_broker_loses_its_leadership_and_comes_back(fragile_kafka: EmbeddedKafka) -> None:
    kafka = fragile_kafka
    topic = create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}))
    victim = kafka.leader(topic, 0)
    victim.suspend()
    try:
        assert victim.alive
        wait_until(lambda: kafka.leader(topic, 0).node != victim.node, "another broker leads")
    finally:
        victim.resume()
    kafka.wait_until_in_sync()


def test_a_temporary_cluster_leaves_nothing_behind() -> None:
    with EmbeddedKafka(brokers=1) as kafka:
        directory = kafka.directory
        assert directory.is_dir()
        assert naming(directory)
    assert not directory.exists()
    assert naming(directory) == []


def test_a_data_directory_survives_a_restart_and_belongs_to_one_cluster_at_a_time(tmp_path: Path) -> None:
    with EmbeddedKafka(tmp_path, brokers=1) as kafka:
        topic = create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}), replicas=1)
        produce(kafka.bootstrap_servers, topic, "kept")
        with pytest.raises(AckwrightError, match="in use by another embedded cluster"):
            EmbeddedKafka(tmp_path, brokers=1).start()
    with EmbeddedKafka(tmp_path, brokers=1) as kafka:
        assert values(kafka.bootstrap_servers, topic, 1) == ["kept"]
    with pytest.raises(AckwrightError, match="holds a cluster with 1 broker, and 3 are requested"):
        EmbeddedKafka(tmp_path, brokers=3).start()
    assert naming(tmp_path) == []


def test_a_killed_parent_takes_its_brokers_with_it() -> None:
    code = """if True:
        import sys
        from ackwright.local.kafka import EmbeddedKafka
        kafka = EmbeddedKafka(brokers=1).start()
        print(kafka.directory, flush=True)
        sys.stdin.read()
    """
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    directory = Path(parent.stdout.readline().strip())
    assert naming(directory)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(ANSWER)
    wait_until(lambda: not naming(directory) and not directory.exists(), "the brokers and their directory are gone")


def test_a_broker_that_cannot_start_reports_the_cause_and_leaves_nothing_behind() -> None:
    kafka = EmbeddedKafka(brokers=1, overrides={"log.segment.bytes": "nonsense"})
    with pytest.raises(AckwrightError, match="storage tool failed"):
        kafka.start()
    assert not kafka.directory.exists()


def test_the_secure_listener_takes_the_right_password_only() -> None:
    with EmbeddedKafka(brokers=1, security=Security(users={"ann": "right"}, tls=True)) as kafka:
        secure = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ann",
            "ssl.ca.location": str(kafka.ca_file),
        }
        plain = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        plain.create_topics([NewTopic("t", 1, 1)], operation_timeout=ANSWER)["t"].result(ANSWER)
        produce(kafka.secure_bootstrap_servers, "t", "hello", **secure, **{"sasl.password": "right"})
        assert values(kafka.bootstrap_servers, "t", 1) == ["hello"]
        errors: list[str] = []
        refused = AdminClient(
            {
                "bootstrap.servers": kafka.secure_bootstrap_servers,
                "log_level": 0,
                **secure,
                "sasl.password": "wrong",
                "error_cb": lambda e: errors.append(e.name()),
            }
        )
        wait_until(lambda: bool(refused.poll(0.1) or "_AUTHENTICATION" in errors), "the broker refuses the password")


def test_options_of_a_jobs_jvm_do_not_reach_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:NoSuchOption")
    with EmbeddedKafka(brokers=1) as kafka:
        assert kafka.broker(1).alive
