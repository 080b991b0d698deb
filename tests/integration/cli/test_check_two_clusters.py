"""`ackwright check -f` with two clusters, and that the permissions it lists are necessary and sufficient on each."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright.cli import main
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright.planning.acls import Operation
from ackwright.planning.clusters import ClusterRole
from ackwright_stream import driver
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.ownership import take
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.sink import for_driver
from integration.support.guarded import described, grant, guarded_brokers, login, required_of_job, withdraw
from integration.support.pipelines import LANES, create_topics, feed, job_of, judge, positions_of, read, running
from integration.support.run_cli import write_document
from integration.support.stateful_clusters import DecidingDriver
from integration.support.stateful_pipelines import DECISIONS, create_decisions
from integration.support.two_clusters import TwoClusters
from sql_texts import COUNTS_BY_KEY
from waiting import WAIT, wait_until


@pytest.fixture(scope="module")
def guarded() -> Iterator[TwoClusters]:
    """Two clusters with access rules."""
    with guarded_brokers(1) as source, guarded_brokers(1) as sink:
        yield TwoClusters(source, sink)


@pytest.fixture
def name() -> str:
    return f"check-{uuid.uuid4().hex[:8]}"


def pipeline_of(clusters: TwoClusters, name: str, guarantee: str, user: str, directory: Path) -> dict[str, Any]:
    """A bounded pipeline of that user of both clusters."""
    declared = described(clusters.source, name, guarantee, user, directory)
    declared["spec"]["sink"]["kafka"] |= login(clusters.sink, user, directory)
    return declared


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_the_job_needs_no_more_than_is_listed_on_two_clusters(
    guarded: TwoClusters, name: str, tmp_path: Path, guarantee: str
) -> None:
    declared = pipeline_of(guarded, name, guarantee, "job", tmp_path)
    guarded.create_topics(f"{name}-in", f"{name}-out", 2)
    feed(guarded.source.bootstrap_servers, f"{name}-in", 2, 0, 50)
    needed = required_of_job(declared)
    grant(guarded.source, "job", needed[ClusterRole.SOURCE])
    grant(guarded.sink, "job", needed[ClusterRole.SINK])
    spec = job_of(declared, tmp_path, secrets=str(tmp_path / "secrets"))
    with running(spec, tmp_path) as job:
        assert job.job.wait(WAIT) == 0, job.job.failure()
    marker = f"{guarded.marker_prefix}{name}-in"
    assert positions_of(guarded.sink.bootstrap_servers, spec.group, marker, 2) == {0: 50, 1: 50}
    assert judge(read(guarded.sink.bootstrap_servers, f"{name}-out"), 2, 50).exactly_once
    copied = positions_of(guarded.source.bootstrap_servers, f"{spec.group}.lag", f"{name}-in", 2)
    assert copied == {0: 50, 1: 50}, "for lag tools"


@pytest.mark.parametrize(
    ("role", "resource", "operation"),
    [
        (ClusterRole.SOURCE, "{name}-in", Operation.READ),
        (ClusterRole.SINK, "ackwright.", Operation.CREATE),
        (ClusterRole.SINK, "ackwright.", Operation.READ),
        (ClusterRole.SINK, "{name}-out", Operation.WRITE),
        (ClusterRole.SINK, LANES, Operation.WRITE),
        (ClusterRole.SINK, "test.{name}", Operation.READ),
        (ClusterRole.SINK, "test.{name}/", Operation.WRITE),
    ],
)
def test_without_any_one_permission_on_two_clusters_the_job_stops(
    guarded: TwoClusters, name: str, tmp_path: Path, *, role: ClusterRole, resource: str, operation: Operation
) -> None:
    """Runs the job's own code without Spark. Describe is not tested, because Read and Write imply it."""
    declared = pipeline_of(guarded, name, "exactly-once", "ann", tmp_path)
    guarded.create_topics(f"{name}-in", f"{name}-out", 1)
    feed(guarded.source.bootstrap_servers, f"{name}-in", 1, 0, 50)
    spec = replace(job_of(declared, tmp_path, secrets=str(tmp_path / "secrets")), operation_timeout_ms=3000)
    lane, needed = Lane(f"{name}-in", 0), required_of_job(declared)
    clusters = {ClusterRole.SOURCE: guarded.source, ClusterRole.SINK: guarded.sink}
    but = resource.format(name=name), operation
    assert any(need.resource.name == but[0] and operation in need.operations for need in needed[role])

    def run() -> str:
        """Returns the result of a driver that starts and delivers."""
        try:
            brokers = driver.check(spec)
            owned = take(spec, brokers, sink := for_driver(spec, brokers))
            at = owned.positions[lane]
            owned.lanes.advance(0, [Range(lane, at, at + 1)], [pa.RecordBatch.from_pydict({"value": [b"x"]})])
        except JobError as e:
            return e.reason.value
        assert sink._member is not None
        sink._member.release()
        return "delivered"

    for of, brokers in clusters.items():
        withdraw(brokers, "ann")
        grant(brokers, "ann", needed[of], but=but if of is role else None)
    wait_until(lambda: run() == "AuthorizationFailed", "the refusal is named")
    grant(clusters[role], "ann", needed[role])
    wait_until(lambda: run() == "delivered", "it recovers without help")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE])
def test_a_stateful_job_needs_no_more_than_is_listed_and_its_decisions(
    guarded: TwoClusters, name: str, tmp_path: Path, operation: Operation
) -> None:
    """Runs the job's own code without Spark."""
    stateful = {
        "state": {"partitions": 2, "outputMode": "update"},
        "checkpoint": {"volume": {"size": "1Gi"}},
        "transform": {"sql": COUNTS_BY_KEY},
    }
    declared = pipeline_of(guarded, name, "exactly-once", "ann", tmp_path)
    declared["spec"] |= stateful
    del declared["spec"]["sink"]["kafka"]["preservePartition"]
    guarded.create_topics(f"{name}-in", f"{name}-out", 1)
    create_decisions(guarded.sink.bootstrap_servers, replication=1)
    feed(guarded.source.bootstrap_servers, f"{name}-in", 1, 0, 50)
    spec = replace(job_of(declared, tmp_path, secrets=str(tmp_path / "secrets")), operation_timeout_ms=3000)
    needed = required_of_job(declared)

    def run() -> str:
        """Returns the result of a driver that starts and decides a batch."""
        try:
            started = DecidingDriver(spec)
            started.decide({0: started.offsets[0] + 1})
        except JobError as e:
            return e.reason.value
        started.leave()
        return "decided"

    withdraw(guarded.source, "ann")
    withdraw(guarded.sink, "ann")
    grant(guarded.source, "ann", needed[ClusterRole.SOURCE])
    grant(guarded.sink, "ann", needed[ClusterRole.SINK], but=(DECISIONS, operation))
    wait_until(lambda: run() == "AuthorizationFailed", "the refusal is named")
    grant(guarded.sink, "ann", needed[ClusterRole.SINK])
    wait_until(lambda: run() == "decided", "it recovers without help")


def test_an_unreachable_cluster_of_the_sink_fails_the_check(
    kafka: EmbeddedKafka, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on the source's cluster is checked nevertheless."""
    monkeypatch.setattr("ackwright.cli.check._TIMEOUT_S", 2.0)
    create_topics(kafka.bootstrap_servers, f"{name}-in", partitions=1)
    declared = TwoClusters(kafka, kafka).document(name, "exactly-once", f"{name}-in", f"{name}-out")
    declared["spec"]["sink"]["kafka"]["bootstrapServers"] = f"127.0.0.1:{free_ports(1)[0]}"
    capsys.readouterr()
    code = main.invoke(["check", "-f", str(write_document(tmp_path, declared)), "-o", "json"])
    verdicts = {check["name"]: check["verdict"] for check in json.loads(capsys.readouterr().out)}
    assert code == ExitCode.UNAVAILABLE
    assert {n for n, verdict in verdicts.items() if verdict == "failed"} == {"sink: brokers"}
    assert verdicts[f"source: topic {name}-in"] == "ok"
