"""`ackwright check` on real brokers, with and without access rules.

It also proves that the permissions which the check lists are necessary and sufficient.
"""

from __future__ import annotations

import functools
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright.api.spec import parse
from ackwright.apply.topics import ensure
from ackwright.cli import main
from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.conditions.kafka import guarantee_met
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright.observe.kafka_state import kafka_state
from ackwright.observe.topics import topics
from ackwright.planning.acls import Operation
from ackwright.planning.kafka_work import kafka_work
from ackwright.planning.permissions import Role
from ackwright.planning.plan import plan as make_plan
from ackwright.planning.topic_records import RecordedTopics
from ackwright.render.jobspec import cluster
from ackwright_stream import driver, topic_limits
from ackwright_stream.cluster import Brokers
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.ownership import take
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.sink import for_driver
from integration.support.guarded import described, grant, guarded_brokers, required_permissions, withdraw
from integration.support.pipelines import (
    LANES,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from integration.support.run_cli import write_document
from waiting import WAIT, wait_until

Checks = dict[str, dict[str, str]]


@pytest.fixture
def name() -> str:
    return f"check-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    with guarded_brokers(1) as brokers:
        yield brokers


def check(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Checks]:
    capsys.readouterr()
    code = main.invoke(["check", *arguments, "-o", "json"])
    return code, {c["name"]: c for c in json.loads(capsys.readouterr().out)}


def stored(directory: Path, pipeline: dict[str, Any]) -> list[str]:
    return ["-f", str(write_document(directory, pipeline)), "--secrets", str(directory / "secrets")]


def test_suitable_brokers_pass_before_and_after_the_topics_exist(
    kafka: EmbeddedKafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, checks = check(capsys, "--bootstrap-servers", kafka.bootstrap_servers)
    assert code == ExitCode.OK
    assert {n for n, c in checks.items() if c["verdict"] != "ok"} == {"racks", "authorizer.class.name"}
    assert "metadata.version" in checks["version"]["found"]
    assert checks["__transaction_state"]["found"] == "3 replicas, 3 in sync, min.insync.replicas = 2"

    pipeline = document(kafka.bootstrap_servers, name, "exactly-once", f"{name}-in", f"{name}-out")
    pipeline["spec"]["topics"] = [{"name": f"{name}-in", "partitions": 2}]
    file = stored(tmp_path, pipeline)[:2]
    code, checks = check(capsys, *file)
    assert code == ExitCode.UNAVAILABLE
    assert checks[f"topic {name}-in"]["found"].startswith("will be created: 2 partitions, 3 replicas")
    assert checks[f"topic {name}-out"]["verdict"] == "failed"
    create_topics(kafka.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=1, replication=3)
    code, checks = check(capsys, *file)
    assert code == ExitCode.OK
    assert checks[f"topic {name}-in"]["remedy"].startswith("the operator will increase topic")
    assert checks[f"topic {name}-out"]["verdict"] == "ok"
    assert checks["permissions of the job"]["found"] == "not needed: the brokers have no authoriser"


def test_unreachable_brokers_fail_the_check(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ackwright.cli.check._TIMEOUT_S", 2.0)
    code, checks = check(capsys, "--bootstrap-servers", f"127.0.0.1:{free_ports(1)[0]}")
    assert code == ExitCode.UNAVAILABLE
    assert [c["verdict"] for c in checks.values()] == ["failed"]


def test_exactly_the_missing_permissions_are_listed(
    guarded: EmbeddedKafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = described(guarded, name, "exactly-once", "ann", tmp_path)
    arguments = stored(tmp_path, pipeline)
    code, checks = check(capsys, *arguments)
    assert code == ExitCode.UNAVAILABLE
    assert checks["broker settings"]["remedy"] == "grant DescribeConfigs on the cluster"
    assert checks[f"topic {name}-in"]["found"] == "the principal may not describe it"
    missing = checks["permissions of the job"]["remedy"].splitlines()
    assert (
        f"kafka-acls --add --allow-principal User:ann --operation Read --operation Describe --topic {name}-in"
        in missing
    )
    assert len(missing) == 7, missing

    everything = required_permissions(pipeline, *Role)
    # Before the topics exist only ACLs show the permissions.
    grant(guarded, "ann", everything, but=(f"test.{name}/", Operation.WRITE))
    add = "kafka-acls --add --allow-principal User:ann"
    line = f"{add} --operation Write --operation Describe --transactional-id test.{name}/"
    lacks_both = f"{line} --resource-pattern-type prefixed"
    only_write = lacks_both.replace(" --operation Describe", "")
    wait_until(
        lambda: check(capsys, *arguments)[1]["permissions of the job"]["remedy"] == only_write,
        "the grants are in force",
    )
    code, checks = check(capsys, *arguments)
    assert code == ExitCode.UNAVAILABLE
    assert {n for n, c in checks.items() if c["verdict"] == "failed"} == {"permissions of the job"}

    grant(guarded, "ann", everything)
    wait_until(lambda: check(capsys, *arguments)[0] == ExitCode.OK, "the last grant is in force")


def test_once_the_topics_exist_the_brokers_report_the_permissions(
    guarded: EmbeddedKafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = described(guarded, name, "at-least-once", "ann", tmp_path)
    arguments = stored(tmp_path, pipeline)
    create_topics(guarded.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=2, replication=1)
    # The audit reads the topic as well, and lacks the same permission.
    grant(guarded, "ann", required_permissions(pipeline, Role.OPERATOR, Role.JOB), but=(f"{name}-in", Operation.READ))
    only = f"kafka-acls --add --allow-principal User:ann --operation Read --topic {name}-in"
    wait_until(
        lambda: check(capsys, *arguments)[1]["permissions of the job"]["remedy"] == only, "the grants are in force"
    )
    code, checks = check(capsys, *arguments)
    assert code == ExitCode.UNAVAILABLE
    assert checks["permissions of the job"]["found"] == f"User:ann lacks Read on topic {name}-in"
    assert checks["permissions of the operator"]["verdict"] == "ok"
    assert checks["permissions of the audit"]["verdict"] == "warning"


def test_a_super_user_has_everything(
    guarded: EmbeddedKafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = described(guarded, name, "exactly-once", "ann", tmp_path)
    pipeline["spec"]["kafka"] = {"bootstrapServers": guarded.bootstrap_servers}
    code, checks = check(capsys, *stored(tmp_path, pipeline))
    assert code == ExitCode.OK
    assert checks["authorizer.class.name"]["verdict"] == "ok"
    assert checks["permissions of the job"]["found"].startswith("User:ANONYMOUS has all ")


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_the_job_needs_no_more_than_is_listed(
    guarded: EmbeddedKafka, name: str, tmp_path: Path, guarantee: str
) -> None:
    pipeline = described(guarded, name, guarantee, "job", tmp_path)
    create_topics(guarded.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=2, replication=1)
    feed(guarded.bootstrap_servers, f"{name}-in", 2, 0, 50)
    grant(guarded, "job", required_permissions(pipeline, Role.JOB))
    spec = job_of(pipeline, tmp_path, secrets=str(tmp_path / "secrets"))
    with running(spec, tmp_path) as job:
        assert job.job.wait(WAIT) == 0, job.job.failure()
    assert positions_of(guarded.bootstrap_servers, spec.group, f"{name}-in", 2) == {0: 50, 1: 50}
    assert judge(read(guarded.bootstrap_servers, f"{name}-out"), 2, 50).exactly_once
    if guarantee == "exactly-once":
        pipeline = described(guarded, name, guarantee, "audit", tmp_path)
        grant(guarded, "audit", required_permissions(pipeline, Role.AUDIT))
        assert main.invoke(["audit", *stored(tmp_path, pipeline)]) == ExitCode.OK


@pytest.mark.parametrize(
    ("lacks", "message"),
    [
        (("{name}-in", Operation.READ), "AuthorizationFailed: .*Topic authorization failed.*grant the job's principal"),
        (
            ("{name}-out", Operation.WRITE),
            "AuthorizationFailed: .*Topic authorization failed.*grant the job's principal",
        ),
        ((LANES, Operation.READ), "AuthorizationFailed: .*Topic authorization failed.*grant the job's principal"),
        ((LANES, Operation.WRITE), "AuthorizationFailed: .*Topic authorization failed.*grant the job's principal"),
        (
            ("test.{name}", Operation.READ),
            "AuthorizationFailed: .*Group authorization failed.*grant the job's principal",
        ),
        (
            ("test.{name}", Operation.WRITE),
            "AuthorizationFailed: .*Transactional Id authorization failed.*grant the job's principal",
        ),
        (
            ("test.{name}/", Operation.WRITE),
            "AuthorizationFailed: .*Transactional Id authorization failed.*grant the job's principal",
        ),
    ],
)
def test_without_any_one_permission_the_job_stops_and_names_it(
    guarded: EmbeddedKafka, name: str, tmp_path: Path, lacks: tuple[str, Operation], message: str
) -> None:
    """Runs the job's own code without Spark. Describe is not tested, because Read and Write imply it."""
    described_ = described(guarded, name, "exactly-once", "ann", tmp_path)
    create_topics(guarded.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=1, replication=1)
    feed(guarded.bootstrap_servers, f"{name}-in", 1, 0, 50)
    spec = replace(job_of(described_, tmp_path, secrets=str(tmp_path / "secrets")), operation_timeout_ms=3000)
    lane, everything = Lane(f"{name}-in", 0), required_permissions(described_, Role.JOB)
    but = lacks[0].format(name=name), lacks[1]
    assert any(need.resource.name == but[0] and but[1] in need.operations for need in everything)

    def run() -> str:
        """Returns the result of a driver that starts and delivers."""
        try:
            cluster_ = driver.check(spec)
            owned = take(spec, cluster_, sink := for_driver(spec, cluster_))
            at = owned.positions[lane]
            owned.lanes.advance(0, [Range(lane, at, at + 1)], [pa.RecordBatch.from_pydict({"value": [b"x"]})])
        except JobError as e:
            return str(e)
        assert sink._member is not None
        sink._member.release()
        return "delivered"

    withdraw(guarded, "ann")
    grant(guarded, "ann", everything, but=but)
    wait_until(lambda: re.search(message, run()), message)  # ACLs take effect after a moment
    grant(guarded, "ann", everything)
    wait_until(lambda: run() == "delivered", "it recovers without help")


def test_without_describe_configs_the_limits_of_topics_are_not_known(
    guarded: EmbeddedKafka, name: str, tmp_path: Path
) -> None:
    """The job runs nevertheless, with the default of producers."""
    described_ = described(guarded, name, "exactly-once", "ann", tmp_path)
    create_topics(guarded.bootstrap_servers, f"{name}-in", f"{name}-out", partitions=1, replication=1)
    spec = job_of(described_, tmp_path, secrets=str(tmp_path / "secrets"))
    everything = required_permissions(described_, Role.JOB)
    withdraw(guarded, "ann")
    grant(guarded, "ann", everything, but=(f"{name}-out", Operation.DESCRIBE_CONFIGS))

    def is_described() -> bool:
        with suppress(JobError):
            driver.check(spec)
            return True
        return False

    wait_until(is_described, "the grants are in force")
    brokers = Brokers(spec.cluster, timeout=10)
    assert topic_limits.limits_of_job(spec, brokers) == {}
    grant(guarded, "ann", everything)
    wait_until(lambda: f"{name}-out" in topic_limits.limits_of_job(spec, brokers), "the last grant is in force")


def test_the_operator_needs_no_more_than_is_listed(guarded: EmbeddedKafka, name: str, tmp_path: Path) -> None:
    described_ = described(guarded, name, "exactly-once", "operator", tmp_path)
    grant(guarded, "operator", required_permissions(described_, Role.OPERATOR))
    pipeline = parse(described_)
    plan = make_plan(pipeline)
    kafka = Kafka(cluster(pipeline.spec.kafka, str(tmp_path / "secrets")))
    ensure(kafka, plan.topics, read_topics=functools.partial(topics, kafka))
    needed = (f"{name}-in",)
    state = kafka_state(kafka, plan, needed, (), check_brokers=True)
    work = kafka_work(plan, needed, state, RecordedTopics(), None)
    assert (guarantee_met(plan, state, work).reason, work.start_error) == ("Met", None)
    assert kafka.configure("TOPIC", f"{name}-in", {"retention.ms": "1000000"}) is Outcome.DONE
    assert kafka.configure("BROKER", "1", {"leader.replication.throttled.rate": "1000000"}) is Outcome.DONE
    assert kafka.configure("BROKER", "1", {"leader.replication.throttled.rate": None}) is Outcome.DONE
    assert kafka.add_partitions(f"{name}-in", 3) is Outcome.DONE
    assert kafka.reassign(f"{name}-in", {0: (1,)}) is Outcome.DONE
    assert kafka.moving() == {}
