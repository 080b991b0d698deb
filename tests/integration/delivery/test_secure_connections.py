"""Passwords and TLS on real brokers for the job, the operator and Java clients.

Wrong passwords, rotated passwords, and certificates of another host.
"""

from __future__ import annotations

import base64
import gc
import subprocess
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from kafka.admin import KafkaAdminClient

from ackwright.api.spec import DeliveryPipeline, parse
from ackwright.api.spec import Kafka as KafkaSpec
from ackwright.clients import reassignments
from ackwright.clients.connections import Connections
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import Kubernetes
from ackwright.errors import AckwrightError
from ackwright.local import certificates, jars
from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright.local.ports import free_ports
from ackwright.render.jobspec import cluster
from ackwright_stream import ownership
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.cluster import Cluster
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, KafkaSink, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.sink import for_driver, for_tasks
from integration.support.pipelines import (
    Running,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from waiting import ANSWER, wait_until

BOUNDED = {"availableNow": True}
NEVER = 120.0  # seconds after which a job that does not end counts as hanging
FIRST, SECOND = "right-password", "rotated-password"
IDENTIFICATION = "ssl.endpoint.identification.algorithm"


@pytest.fixture
def name() -> str:
    return f"tls-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=1, security=Security(users={"ann": FIRST, "bob": FIRST}, tls=True)) as brokers:
        yield brokers


Described = Callable[..., dict[str, Any]]


@pytest.fixture
def secured(guarded: EmbeddedKafka, tmp_path: Path, name: str) -> Described:
    """A bounded pipeline on the secure listener: Secrets as files below secrets/, 50 records per partition."""
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(guarded.bootstrap_servers, source, sink, partitions=2, replication=1)
    feed(guarded.bootstrap_servers, source, 2, 0, 50)

    def make(guarantee: str, password: str, user: str = "ann") -> dict[str, Any]:
        kafka = secure(guarded, tmp_path, user, password)
        return document("", name, guarantee, source, sink, kafka=kafka, tolerate={"brokerFailures": 0}, trigger=BOUNDED)

    return make


def secure(brokers: EmbeddedKafka, directory: Path, user: str, password: str) -> dict[str, Any]:
    """spec.kafka, with what it refers to below secrets/."""
    for file, text in {
        "kafka-user/username": user,
        "kafka-user/password": password,
        "kafka-ca/ca.crt": brokers.ca_file.read_text(),
    }.items():
        (directory / "secrets" / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / "secrets" / file).write_text(text)
    auth = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "kafka-user"}}
    return {
        "bootstrapServers": brokers.secure_bootstrap_servers,
        "auth": auth,
        "tls": {"caSecret": {"name": "kafka-ca"}},
    }


def job(described: dict[str, Any], directory: Path) -> JobSpec:
    return job_of(described, directory, secrets=str(directory / "secrets"))


def ends(run: Running) -> int:
    """Waits for the end of the job; its exit code."""
    return run.job.wait(NEVER)


# ------------------------------------------------ whole jobs


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_with_a_password_over_tls(guarded: EmbeddedKafka, secured: Described, tmp_path: Path, guarantee: str) -> None:
    spec = job(secured(guarantee, FIRST), tmp_path)
    with running(spec, tmp_path) as run:
        assert ends(run) == 0, run.job.failure()
    assert judge(read(guarded.bootstrap_servers, str(spec.sink_of(KafkaSink).topic)), 2, 50).exactly_once
    for file in ("job.json", "job.log"):
        assert FIRST not in (tmp_path / file).read_text()


def test_a_wrong_password_is_an_authentication_failure(
    guarded: EmbeddedKafka, secured: Described, tmp_path: Path
) -> None:
    spec = job(secured("exactly-once", "wrong-password"), tmp_path)
    with running(spec, tmp_path) as run:
        assert ends(run) == 4
        failure = str(run.job.failure())
    assert failure.startswith("AuthenticationFailed: ")
    assert "check the user name and the password" in failure
    assert "wrong-password" not in (tmp_path / "job.log").read_text()
    assert read(guarded.bootstrap_servers, str(spec.sink_of(KafkaSink).topic), isolation="read_uncommitted") == []
    assert positions_of(guarded.bootstrap_servers, spec.group, spec.source.topics[0], 2) == {}


@pytest.mark.parametrize("password", ["pa55word\n", 'pa55"word'], ids=["newline", "quote"])
def test_control_a_refused_password_would_break_the_jaas_configuration(tmp_path: Path, password: str) -> None:
    """The control of a unit test.

    It is test_a_password_that_jaas_cannot_hold_is_refused_and_not_repeated in tests/unit/test_secrets.py.
    """
    for file, text in {"username": "ann", "password": password}.items():
        (tmp_path / "s").mkdir(exist_ok=True)
        (tmp_path / "s" / file).write_text(text)
    auth = {"mechanism": "SCRAM-SHA-512", "credentialsSecret": {"name": "s"}}
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    settings = cluster(KafkaSpec.model_validate({"bootstrapServers": nobody, "auth": auth}), str(tmp_path))
    output = java(settings.java, nobody, tmp_path)
    assert "in JAAS config" in output
    assert ("key 'word'" in output) is ('"' in password), "a part of the password"
    with pytest.raises(AckwrightError, match="a line break, a quotation mark"):
        Kafka(settings)


# ------------------------------------------------ a password that is rotated while connections are open


def rotate(brokers: EmbeddedKafka, user: str, password: str) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap_servers})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    altered = admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, info, password.encode())])
    altered[user].result(ANSWER)


class Secrets:
    """An API server whose Secrets are files in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.version, self.asked = 1, 0

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self.asked += 1
        data = {file.name: base64.b64encode(file.read_bytes()).decode() for file in (self._directory / name).iterdir()}
        return {"metadata": {"uid": name, "resourceVersion": str(self.version)}, "data": data}


def threads_of_librdkafka() -> frozenset[str]:
    """The ids of this process's threads that belong to librdkafka."""
    ids = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            if (task / "comm").read_text().startswith("rdk:"):
                ids.add(task.name)
        except OSError:
            continue  # it has just ended
    return frozenset(ids)


def test_the_operator_takes_a_rotated_password_and_closes_the_old_connection(
    guarded: EmbeddedKafka, secured: Described, tmp_path: Path
) -> None:
    described = secured("exactly-once", FIRST, "bob")
    pipeline, topic = parse(described), f"{described['metadata']['name']}-in"
    secrets, now = Secrets(tmp_path / "secrets"), [0.0]
    connections = Connections(cast(Kubernetes, secrets), tmp_path / "open", clock=lambda: now[0])

    def use_connection(pipeline: DeliveryPipeline) -> None:
        """Uses the connection as the operator does: a failed call closes it."""
        key, kafka = connections.kafka(pipeline)
        try:
            assert set(kafka.topics([topic])) == {topic}
        except AckwrightError as e:
            connections.failed(key, e)
            raise

    use_connection(pipeline)
    first = connections.credentials(pipeline)
    rotate(guarded, "bob", SECOND)
    use_connection(pipeline)  # an open connection stays authenticated
    asked = secrets.asked
    connections.failed(
        connections.kafka(pipeline)[0], AckwrightError(Reason.BROKERS_UNREACHABLE, "a broker was restarted")
    )
    now[0] += 20

    def refused() -> bool:
        now[0] += 20
        with pytest.raises(AckwrightError) as caught:
            use_connection(pipeline)
        assert SECOND not in str(caught.value)
        assert FIRST not in str(caught.value)
        return caught.value.reason is Reason.AUTHENTICATION_FAILED

    wait_until(refused, "the old password is refused")
    assert connections.credentials(pipeline) is None, "credentials that failed are no longer trusted"
    secure(guarded, tmp_path, "bob", SECOND)
    secrets.version += 1
    earlier = threads_of_librdkafka()
    use_connection(pipeline)  # at once: the failure was the old password's
    old = threads_of_librdkafka() - earlier
    assert old
    assert connections.credentials(pipeline) not in (first, None)
    assert secrets.asked > asked

    rotate(guarded, "bob", FIRST)
    secure(guarded, tmp_path, "bob", FIRST)
    secrets.version += 1
    now[0] += 130
    use_connection(pipeline)
    assert old & threads_of_librdkafka(), "the control: the old connection is still there"
    for _ in range(6):
        now[0] += 110
        use_connection(pipeline)
    gc.collect()
    wait_until(lambda: not old & threads_of_librdkafka(), "the old connection is closed")
    assert len(list((tmp_path / "open").iterdir())) == 1


def test_a_driver_takes_a_rotated_password_with_its_next_transaction(
    guarded: EmbeddedKafka, secured: Described, tmp_path: Path
) -> None:
    """Runs the job's own code without Spark. Until the files have the new password, every transaction is refused."""
    spec = replace(job(secured("exactly-once", FIRST), tmp_path), operation_timeout_ms=5000)
    lane = Lane(spec.source.topics[0], 0)
    reached = Cluster(spec)
    owned = ownership.take(spec, reached, for_driver(spec, reached))
    assert owned.lanes.advance(0, [Range(lane, 0, 10)])[0] is Outcome.DONE
    rotate(guarded, "ann", SECOND)
    try:
        with pytest.raises(JobError):  # the control
            owned.lanes.advance(0, [Range(lane, 10, 20)])
        secure(guarded, tmp_path, "ann", SECOND)
        assert owned.lanes.advance(0, [Range(lane, 10, 20)])[0] is Outcome.DONE
    finally:
        rotate(guarded, "ann", FIRST)
    assert positions_of(guarded.bootstrap_servers, spec.group, lane.topic, 2) == {0: 20, 1: 0}


def test_at_most_once_recreates_its_producer_for_other_credentials(secured: Described, tmp_path: Path) -> None:
    """The producer is cached between batches; with stale credentials an acks=0 producer loses records silently."""
    spec = job(secured("at-most-once", FIRST), tmp_path)
    sink = for_tasks(spec, transactional=False)
    first = sink.plain_writer.producer()
    assert sink.plain_writer.producer() is first
    (tmp_path / "secrets" / "kafka-user" / "password").write_text(SECOND)
    assert sink.plain_writer.producer() is not first


# ------------------------------------------------ a certificate of another host


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """A broker whose certificate is of the right authority but for another host, as after a theft of a certificate."""
    directory = tmp_path_factory.mktemp("elsewhere")
    certificates.create(directory, ["kafka.example"])
    with EmbeddedKafka(directory, brokers=1, security=Security(users={"ann": FIRST}, tls=True)) as brokers:
        yield brokers


def test_a_certificate_of_another_host_is_refused_by_every_client(
    elsewhere: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """Each client refuses it for its name alone.

    With host name verification off, which no user can configure, the same client connects.
    """
    described = document(
        "", name, "exactly-once", "in", "out", kafka=secure(elsewhere, tmp_path, "ann", FIRST), trigger=BOUNDED
    )
    spec = job(described, tmp_path)
    unverified = replace(
        spec.cluster,
        librdkafka={**spec.cluster.librdkafka, IDENTIFICATION: "none"},
        java={**spec.cluster.java, IDENTIFICATION: ""},
    )
    assert spec.cluster.librdkafka[IDENTIFICATION] == spec.cluster.java[IDENTIFICATION] == "https"

    operator = Kafka(spec.cluster, timeout=2)
    with pytest.raises(AckwrightError) as refused:
        operator.racks()
    assert refused.value.reason is Reason.AUTHENTICATION_FAILED
    assert "certificate verify failed" in refused.value.message
    assert "match their host names" in refused.value.message
    with pytest.raises(AckwrightError):
        operator.moving()  # by kafka-python
    with pytest.raises(JobError) as stopped:
        Cluster(spec).check()
    assert stopped.value.reason is Reason.AUTHENTICATION_FAILED
    assert "certificate verify failed" in stopped.value.message
    assert "No subject alternative" in java(spec.cluster.java, spec.cluster.bootstrap_servers, tmp_path)

    assert set(Kafka(unverified, timeout=5).racks()) == {1}
    KafkaAdminClient(**reassignments._renamed(operator._settings, 5000), ssl_check_hostname=False).close()
    with pytest.raises(JobError, match="no such topic"):
        Cluster(replace(spec, cluster=unverified)).check()
    assert "(id: 1 " in java(unverified.java, unverified.bootstrap_servers, tmp_path)


def java(settings: Any, servers: str, directory: Path) -> str:
    """The output of Kafka's own client that requests the brokers' versions, with the settings of Spark's clients."""
    file = directory / "client.properties"
    lines = (
        f"{k}={v}\n" for k, v in {**settings, "default.api.timeout.ms": "5000", "request.timeout.ms": "5000"}.items()
    )
    file.write_text("".join(lines))
    tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    argv = [
        "java",
        "-cp",
        f"{jars.directory('kafka')}/*",
        tool,
        "--bootstrap-server",
        servers,
        "--command-config",
        str(file),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr
