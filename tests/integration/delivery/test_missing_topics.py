"""Brokers that create every topic a client asks for: the job's clients must not ask for a misspelt one."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import ExitCode, JobSpec, Restart
from integration.support.pipelines import create_topics, document, feed, job_of, read, running
from waiting import ANSWER, WAIT, wait_until

RESTART = Restart(initial_ms=100, max_ms=200, forgive_after_ms=60_000, max_attempts=2)


@pytest.fixture(scope="module")
def creating() -> Iterator[EmbeddedKafka]:
    """A broker with auto.create.topics.enable, which is Kafka's default."""
    with EmbeddedKafka(brokers=1, overrides={"auto.create.topics.enable": "true"}) as cluster:
        yield cluster


def exists(kafka: EmbeddedKafka, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=ANSWER).topics


def test_control_a_producer_with_default_settings_creates_a_topic(creating: EmbeddedKafka) -> None:
    wrong = f"misspelt-{uuid.uuid4().hex[:8]}"
    asking = {"bootstrap.servers": creating.bootstrap_servers}
    Producer({**asking, "allow.auto.create.topics": "false"}).list_topics(wrong, 20)
    assert not exists(creating, wrong)
    Producer(asking).list_topics(wrong, 20)
    wait_until(lambda: exists(creating, wrong), "the broker has created the topic")


def routed(kafka: EmbeddedKafka, name: str, guarantee: str, directory: Path) -> JobSpec:
    """Each record goes to the topic that its value's partition names: 0 to a topic that exists, 1 to a misspelt one."""
    topic = f"IF(CAST(value AS STRING) LIKE '1:%', '{name}-wrong', '{name}-out')"
    described = document(
        kafka.bootstrap_servers,
        name,
        guarantee,
        f"{name}-in",
        f"{name}-out",
        transform={"sql": f"SELECT key, value, {topic} AS topic FROM source"},  # noqa: S608
        trigger={"availableNow": True},
    )
    return dataclasses.replace(job_of(described, directory), restart=RESTART)


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_a_record_for_a_topic_that_does_not_exist_fails_and_creates_nothing(
    creating: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    servers, name = creating.bootstrap_servers, f"routed-{uuid.uuid4().hex[:8]}"
    create_topics(servers, f"{name}-in", f"{name}-out", partitions=2, replication=1)
    feed(servers, f"{name}-in", 2, 0, 10)
    spec = routed(creating, name, guarantee, tmp_path)
    with running(spec, tmp_path) as job:
        code, failure, log = job.job.wait(WAIT), str(job.job.failure()), job.job.log.read_text()
    assert not exists(creating, f"{name}-wrong")
    if guarantee == "at-most-once":
        assert f"topic '{name}-wrong' cannot be written" in log
        return
    assert code == ExitCode.FAILED
    assert "BatchFailed" in failure
    assert f"topic '{name}-wrong' cannot be written" in failure

    create_topics(servers, f"{name}-wrong", partitions=2, replication=1)
    with running(spec, tmp_path / "again") as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    assert {r.value for r in read(servers, f"{name}-wrong")} == {f"1:{n}".encode() for n in range(10)}
