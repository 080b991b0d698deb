"""ackwright top: which pipelines come first, what counts as fine, its formats and exit codes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright.cli.top import ORDERS, Order, Row, ordered, row, summary
from ackwright.clients.kubernetes import Kubernetes
from ackwright_stream.jobspec import ExitCode
from unit.cli.halted_cluster import condition


def pipeline(
    name: str,
    *,
    namespace: str = "ops",
    ready: str = "True",
    reason: str = "Delivering",
    met: str = "True",
    lag: int = 1,
) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "generation": 1},
        "spec": {"guarantee": "exactly-once"},
        "status": {
            "conditions": [condition("Ready", ready, reason, "why"), condition("GuaranteeMet", met, reason, "why")],
            "delivery": {"lag": lag, "recordsPerSecond": 2.5, "observedAt": "2026-01-02T03:04:05Z"},
            "driver": {"pod": f"{name}-0", "restarts": 3},
        },
    }


class Cluster(Kubernetes):
    """Pipelines of several namespaces."""

    def __init__(self, *resources: dict[str, Any]) -> None:
        self.resources = list(resources)

    def objects(self, api_version: str, kind: str, namespace: str | None, labels: Any = None) -> list[dict[str, Any]]:
        return [r for r in self.resources if namespace in (None, r["metadata"]["namespace"])]


def top(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, *arguments: str) -> int:
    monkeypatch.setattr(target, "_connect", lambda ns, *_: Target(cluster, ns or "default", is_named=ns is not None))
    return main.invoke(["top", *arguments])


def test_every_namespace_unless_one_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(pipeline("a"), pipeline("b", namespace="billing", lag=1234))
    assert top(monkeypatch, cluster) == ExitCode.OK
    total, header, first, second = capsys.readouterr().out.splitlines()
    assert total == "2 pipelines, 1,235 lag, 5.0 records/s, guarantee not met: 0, not ready: 0, suspended: 0"
    assert header.split() == ["namespace", "name", "guarantee", "met", "lag", "records/s", "restarts", "ready"]
    assert first.split() == ["billing", "b", "exactly-once", "True", "1,234", "2.5", "3", "True"]
    assert second.split()[:2] == ["ops", "a"]
    assert top(monkeypatch, cluster, "-n", "ops") == ExitCode.OK
    assert "billing" not in capsys.readouterr().out


def test_the_help_of_the_namespace_says_what_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["top", "--help"]) == ExitCode.OK
    shown = " ".join(capsys.readouterr().out.split())
    assert "default: of all namespaces" in shown
    assert "the context's" not in shown


def test_a_guarantee_that_is_not_met_comes_first_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(
        pipeline("calm", lag=10**6),
        pipeline("broken", met="False", reason="TopicMissing", ready="False", lag=0),
        pipeline("late", ready="False", reason="LagGrowing", lag=5),
    )
    assert top(monkeypatch, cluster) == ExitCode.FAILED
    rows = [line.split()[1] for line in capsys.readouterr().out.splitlines()[2:]]
    assert rows == ["broken", "late", "calm"]
    assert top(monkeypatch, cluster, "-o", "json", "--limit", "1") == ExitCode.FAILED
    document = json.loads(capsys.readouterr().out)
    assert document["summary"] == {
        "pipelines": 3,
        "guaranteeNotMet": 1,
        "notReady": 2,
        "suspended": 0,
        "lag": 1_000_005,
        "recordsPerSecond": 7.5,
    }
    (worst,) = document["pipelines"]
    assert (worst["name"], worst["met"], worst["reason"], worst["restarts"]) == ("broken", "False", "TopicMissing", 3)
    assert worst["observedAt"] == "2026-01-02T03:04:05Z"


def test_a_pipeline_that_has_not_been_observed_for_long_is_not_fine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pipeline("calm")
    assert top(monkeypatch, Cluster(resource)) == ExitCode.OK, "the control"
    resource["status"]["observedAt"] = "2020-01-01T00:00:00Z"
    capsys.readouterr()
    assert top(monkeypatch, Cluster(resource)) == ExitCode.FAILED
    *_, shown = capsys.readouterr().out.splitlines()
    assert (shown.split()[3], shown.split()[-1]) == ("Unknown", "NotObserved")


def test_a_suspended_pipeline_is_fine_and_one_without_a_status_is_not() -> None:
    suspended = pipeline("s", ready="False", reason="Suspended", met="Unknown")
    assert not row(suspended).is_fine, "its spec does not say so"
    suspended["spec"]["suspend"] = True
    assert row(suspended).is_fine
    new = {"metadata": {"namespace": "ops", "name": "n"}, "spec": {"guarantee": "at-least-once"}}
    assert not row(new).is_fine
    assert not row(pipeline("u", met="Unknown")).is_fine, "nothing is known of the guarantee"


def test_a_lag_that_nobody_has_measured_is_not_shown_as_a_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    resource = pipeline("a")
    del resource["status"]["delivery"]["lag"]
    assert top(monkeypatch, Cluster(resource)) == ExitCode.OK
    *_, shown = capsys.readouterr().out.splitlines()
    assert shown.split() == ["ops", "a", "exactly-once", "True", "-", "2.5", "3", "True"]


def test_no_pipelines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert top(monkeypatch, Cluster()) == ExitCode.OK
    assert capsys.readouterr().out == "no pipelines\n"


def test_watch_shows_changes_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(pipeline("a", lag=1234))
    passed = []

    def pass_time(seconds: float) -> None:
        passed.append(seconds)
        if len(passed) == 2:
            cluster.resources[0]["status"]["delivery"]["lag"] = 99
        if len(passed) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", pass_time)
    assert top(monkeypatch, cluster, "--watch") == 130
    output = capsys.readouterr().out
    assert output.count("exactly-once") == 2
    assert top(monkeypatch, cluster, "--watch", "-o", "json") == ExitCode.INVALID


_ROWS = st.builds(
    Row,
    namespace=st.sampled_from(["a", "b"]),
    name=st.text("xyz", min_size=1, max_size=3),
    guarantee=st.just("exactly-once"),
    met=st.sampled_from(["True", "False", "Unknown", ""]),
    ready=st.sampled_from(["True", "False"]),
    reason=st.just("x"),
    suspended=st.booleans(),
    lag=st.none() | st.integers(0, 9),
    records_per_second=st.none() | st.floats(0, 9),
    restarts=st.none() | st.integers(0, 9),
    observed_at=st.none(),
)


@given(st.lists(_ROWS, max_size=8), st.sampled_from(ORDERS))
def test_the_order_keeps_every_pipeline_and_hides_no_broken_guarantee(rows: list[Row], by: Order) -> None:
    result = ordered(rows, by)
    assert sorted(map(repr, result)) == sorted(map(repr, rows))
    assert ordered(list(reversed(rows)), by) == result or len({(r.namespace, r.name) for r in rows}) < len(rows)
    assert summary(result) == summary(rows)
    if by != "name":
        broken = [r.met == "False" for r in result]
        assert broken == sorted(broken, reverse=True)
        fine = [r.lag for r in result if r.is_fine]
        if by == "lag":
            known = [lag for lag in fine if lag is not None]
            assert fine == [*sorted(known, reverse=True), *[None] * (len(fine) - len(known))]
