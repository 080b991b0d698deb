"""The login of the sink's own cluster: a wrong one is reported with that cluster's address, and nothing is written."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright_stream.jobspec import ExitCode
from integration.support.pipelines import create_topics, document, feed, job_of, judge, read, running
from waiting import WAIT

PASSWORD = "sink-password"


@pytest.fixture(scope="module")
def sink_cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1, security=Security(users={"ann": PASSWORD})) as brokers:
        yield brokers


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_wrong_login_below_the_sink_names_the_sinks_address(
    kafka: EmbeddedKafka, sink_cluster: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    """With the right password the same pipeline delivers."""
    name = f"login-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(kafka.bootstrap_servers, source, partitions=2)
    create_topics(sink_cluster.bootstrap_servers, sink, partitions=2, replication=1)
    feed(kafka.bootstrap_servers, source, 2, 0, 50)
    described = document(
        kafka.bootstrap_servers,
        name,
        guarantee,
        source,
        sink,
        trigger={"availableNow": True},
        tolerate={"brokerFailures": 0},
    )
    described["spec"]["sink"]["kafka"] |= {
        "bootstrapServers": sink_cluster.secure_bootstrap_servers,
        "auth": {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "sink-user"}},
    }
    login = tmp_path / "secrets" / "sink-user"
    login.mkdir(parents=True)
    (login / "username").write_text("ann")
    (login / "password").write_text("wrong-password")
    spec = job_of(described, tmp_path, secrets=str(tmp_path / "secrets"))
    with running(spec, tmp_path) as job:
        assert job.job.wait(WAIT) == ExitCode.UNAVAILABLE, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason == "AuthenticationFailed"
    assert sink_cluster.secure_bootstrap_servers in failure.message
    assert kafka.bootstrap_servers not in failure.message
    assert "wrong-password" not in (tmp_path / "job.log").read_text()
    assert read(sink_cluster.bootstrap_servers, sink, isolation="read_uncommitted") == []

    (login / "password").write_text(PASSWORD)
    with running(spec, tmp_path) as job:
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    assert judge(read(sink_cluster.bootstrap_servers, sink), 2, 50).exactly_once
