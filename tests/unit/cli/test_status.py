"""ackwright status: one pipeline, all of them, wide, and while they change."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright.clients.kubernetes import Kubernetes
from ackwright_stream.jobspec import ExitCode
from unit.cli.halted_cluster import condition


def pipeline(namespace: str, name: str, ready: str = "True", reason: str = "Delivering") -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "generation": 1},
        "spec": {"guarantee": "exactly-once"},
        "status": {
            "observedGeneration": 1,
            "conditions": [condition("Ready", ready, reason, "the reason in words")],
            "delivery": {"batch": 7, "lag": 1234, "recordsPerSecond": 5.0},
            "driver": {"pod": f"{name}-driver-0", "node": "node-3", "restarts": 2},
            "topicsReady": "2/2",
        },
    }


class Cluster(Kubernetes):
    """Two namespaces with a pipeline each."""

    def __init__(self) -> None:
        self.resources = [pipeline("ops", "flights"), pipeline("billing", "orders", "False", "TopicMissing")]
        self.reads = 0

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return next((r for r in self.resources if r["metadata"]["name"] == name), None)

    def objects(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        self.reads += 1
        resources = [r for r in self.resources if namespace in (None, r["metadata"]["namespace"])]
        copied: list[dict[str, Any]] = json.loads(json.dumps(resources))
        return copied


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(target, "_connect", lambda namespace, *_: Target(cluster, namespace or "ops"))
    return cluster


def test_all_pipelines_of_the_namespace(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["status"]) == ExitCode.OK
    output = capsys.readouterr().out
    assert "flights" in output
    assert "orders" not in output


def test_all_namespaces_and_why_one_is_not_ready(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["status", "-A"]) == ExitCode.FAILED
    header, orders, flights = capsys.readouterr().out.splitlines()
    assert header.split()[:2] == ["namespace", "name"]
    assert orders.split()[:2] == ["billing", "orders"]
    assert orders.rstrip().endswith("TopicMissing: the reason in words")
    assert flights.split() == ["ops", "flights", "exactly-once", "True", "1,234", "5.0"]


def test_a_lag_that_nobody_has_measured_is_not_shown_as_a_number(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    del cluster.resources[0]["status"]["delivery"]["lag"]
    assert main.invoke(["status"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[1].split() == ["flights", "exactly-once", "True", "-", "5.0"]
    assert main.invoke(["status", "flights"]) == ExitCode.OK
    assert "batch 7, lag unknown, 5.0 records/s" in capsys.readouterr().out


def test_the_watermark_of_a_stateful_pipeline_is_shown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.resources[0]["status"]["delivery"]["watermark"] = "2013-01-01T00:00:00Z"
    assert main.invoke(["status", "flights"]) == ExitCode.OK
    assert "batch 7, lag 1,234, 5.0 records/s, watermark 2013-01-01T00:00:00Z (at" in capsys.readouterr().out


def test_the_guarantee_is_that_in_force(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.resources[0]["status"]["guarantee"] = "at-least-once"
    assert main.invoke(["status"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[1].split()[1] == "at-least-once"
    assert main.invoke(["status", "flights"]) == ExitCode.OK
    assert capsys.readouterr().out.splitlines()[0] == "ops/flights  at-least-once"


def test_a_cause_that_several_conditions_share_is_printed_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    conditions = [
        condition("Ready", "False", "PositionLost", "lane in-0 has no position"),
        condition("GuaranteeMet", "Unknown", "Creating", "another cause"),
        condition("JobRunning", "False", "PositionLost", "lane in-0 has no position"),
        condition("Stalled", "True", "PositionLost", "lane in-0 has no position"),
        condition("Reconciling", "False", "Settled", ""),
    ]
    cluster.resources[0]["status"]["conditions"] = conditions
    assert main.invoke(["status", "flights"]) == ExitCode.FAILED
    rows = [line.rstrip() for line in capsys.readouterr().out.splitlines()[2:7]]
    endings = [
        "PositionLost: lane in-0 has no position",
        "Creating: another cause",
        "PositionLost: see Ready",
        "PositionLost: see Ready",
        "Settled",
    ]
    assert [row.endswith("  " + ending) for row, ending in zip(rows, endings, strict=True)] == [True] * 5


def test_wide(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["status", "-o", "wide"]) == ExitCode.OK
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[-5:] == ["2/2", "7", "2", "flights-driver-0", "node-3"]


def test_the_runs_of_a_schedule(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {"lastScheduleTime": "2026-11-21T03:00:00Z", "nextScheduleTime": "2026-11-22T03:00:00Z"}
    of = {"schedule": "0 3 * * *", "timeZone": "UTC"}
    cluster.resources[0]["status"]["schedule"] = {**of, **runs}
    assert main.invoke(["status", "-o", "wide"]) == ExitCode.OK
    _, row = capsys.readouterr().out.splitlines()
    assert row.split()[-2:] == list(runs.values())
    assert main.invoke(["status", "flights"]) == ExitCode.OK
    shown = "schedule  0 3 * * * (UTC): last run 2026-11-21T03:00:00Z, next run 2026-11-22T03:00:00Z"
    assert shown in capsys.readouterr().out
    cluster.resources[0]["status"]["schedule"] = of
    assert main.invoke(["status", "flights"]) == ExitCode.OK
    assert "last run none yet, next run none: the pipeline is suspended" in capsys.readouterr().out


def test_one_pipeline(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["status", "orders", "-n", "billing"]) == ExitCode.FAILED
    assert "TopicMissing: the reason in words" in capsys.readouterr().out
    assert main.invoke(["status", "flights", "-o", "json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "flights"


def test_what_a_driver_that_has_just_started_leaves_open(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    status = cluster.resources[0]["status"]
    status["delivery"] |= {"batch": -1, "deadLetters": 1}
    status["driver"]["lastError"] = "TopicMissing: no such topic"
    main.invoke(["status", "flights"])
    output = capsys.readouterr().out
    assert "no batch by this driver yet, lag 1,234" in output
    assert "1 dead letter\n" in output
    assert "on node-3, 2 restarts" in output  # its number is not known
    assert "earlier error: TopicMissing: no such topic" in output  # it is ready
    status["conditions"][0]["status"] = "False"
    main.invoke(["status", "flights"])
    assert "last error: TopicMissing: no such topic" in capsys.readouterr().out


def test_watch_prints_each_change_once(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def pass_time(_: float) -> None:
        if cluster.reads == 2:
            cluster.resources[0]["status"]["delivery"]["lag"] = 99
        if cluster.reads == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pass_time)
    assert main.invoke(["status", "--watch"]) == 130
    output = capsys.readouterr().out
    assert output.count("flights ") == 2
    assert output.index("1,234") < output.index("99")


@pytest.mark.parametrize("arguments", [["flights", "-A"], ["--watch", "-o", "json"]])
def test_what_does_not_go_together(cluster: Cluster, arguments: list[str]) -> None:
    assert main.invoke(["status", *arguments]) == ExitCode.INVALID


def test_a_status_that_is_too_old_is_shown_as_unknown(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.resources[0]["status"]["observedAt"] = "2020-01-01T00:00:00Z"
    assert main.invoke(["status", "flights"]) == ExitCode.FAILED
    shown = capsys.readouterr().out
    assert "Unknown" in shown
    assert "NotObserved" in shown
    del cluster.resources[0]["status"]["observedAt"]
    assert main.invoke(["status", "flights"]) == ExitCode.OK, "the control"
