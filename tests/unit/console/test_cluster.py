"""The console's reads of a cluster: what is shown if some of them are refused, and how the list stays current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ackwright.clients.kubernetes import ApiError
from ackwright.console import cluster
from ackwright.console.cluster import ClusterSource
from ackwright.console.source import RecordedSource, record
from ackwright.errors import AckwrightError
from unit.console import recorded
from unit.console.cluster_double import FORBIDDEN, Cluster, audit_pod
from waiting import wait_until


def details(kubernetes: Cluster) -> Any:
    read = ClusterSource(kubernetes, "ops", "a cluster").details("ops", "delayed-flights")
    assert read
    return read[1]


def test_everything_is_read() -> None:
    read = details(Cluster())
    assert [p["metadata"]["name"] for p in read.pods] == ["delayed-flights-0"]
    assert {e["involvedObject"]["name"] for e in read.events} == {"delayed-flights", "delayed-flights-0"}
    assert read.progress["batches"] == 1842
    assert read.audits[0]["verdict"] == "held"
    assert read.audits[0]["delivered"] == 1_310_882
    assert read.missing == []


def test_what_is_refused_is_named_and_the_rest_is_shown() -> None:
    kubernetes = Cluster()
    kubernetes.refused = {"proxy": FORBIDDEN, "Event": FORBIDDEN}
    read = details(kubernetes)
    assert read.pods
    assert (read.progress, list(read.events)) == (None, [])
    assert [m.partition(":")[0] for m in read.missing] == ["Events", "the driver's progress"]


def test_a_pipeline_that_does_not_exist() -> None:
    assert ClusterSource(Cluster(), "ops", "a cluster").details("ops", "other") is None


def test_a_resource_that_cannot_be_read_is_an_error() -> None:
    kubernetes = Cluster()
    source = ClusterSource(kubernetes, "ops", "a cluster")
    kubernetes.refused = {"get": FORBIDDEN}
    with pytest.raises(AckwrightError, match="forbidden"):
        source.details("ops", "delayed-flights")


@pytest.mark.parametrize(
    ("exit_code", "message", "verdict", "why"),
    [
        (None, "", "running", None),
        (1, "", "broken", ""),
        (6, "", "unproven", ""),
        (
            4,
            '{"exitCode": 4, "failure": {"reason": "BrokersUnreachable", "message": "m"}}',
            "failed",
            "BrokersUnreachable: m",
        ),
        (137, "", "failed", ""),
    ],
)
def test_an_audit_without_a_readable_log(exit_code: int | None, message: str, verdict: str, why: str | None) -> None:
    kubernetes = Cluster()
    kubernetes.pods = [audit_pod(exit_code, message)]
    kubernetes.refused = {"log": FORBIDDEN}
    (audit,) = details(kubernetes).audits
    assert (audit["verdict"], audit.get("why")) == (verdict, why)


def test_the_log_of_an_audit_that_has_ended_is_read_once() -> None:
    source = ClusterSource(Cluster(), "ops", "a cluster")
    for _ in range(2):
        read = source.details("ops", "delayed-flights")
        assert read
        assert (read[1].audits[0]["verdict"], list(read[1].missing)) == ("held", [])


def test_a_log_that_was_refused_is_read_again() -> None:
    kubernetes = Cluster()
    source = ClusterSource(kubernetes, "ops", "a cluster")
    kubernetes.refused = {"log": FORBIDDEN}
    first = source.details("ops", "delayed-flights")
    kubernetes.refused = {}
    second = source.details("ops", "delayed-flights")
    assert first
    assert second
    assert "delivered" not in first[1].audits[0]
    assert second[1].audits[0]["delivered"] == 1_310_882


def test_the_list_follows_changes_and_reports_a_broken_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_PAUSE_S", 0.05)
    kubernetes = Cluster()
    source = ClusterSource(kubernetes, None, "a cluster")
    kubernetes.changes = [("ADDED", recorded.resource("stock")), ("DELETED", kubernetes.resource)]
    kubernetes.broken.clear()  # the watch stays open after its changes
    source.watch()
    wait_until(lambda: [r["metadata"]["name"] for r in source.pipelines().resources] == ["stock"], "the changes")
    assert source.pipelines().problem is None
    kubernetes.refused["list"] = ApiError(None, "no answer")
    kubernetes.broken.set()
    wait_until(lambda: "no answer" in (source.pipelines().problem or ""), "the problem")
    assert len(source.pipelines().resources) == 1  # what was read last
    kubernetes.refused = {"watch": FORBIDDEN}
    wait_until(lambda: source.pipelines().problem is None, "the list is current again")


def test_a_cluster_that_does_not_answer_fails_at_the_start() -> None:
    kubernetes = Cluster()
    kubernetes.refused = {"list": ApiError(None, "no answer")}
    with pytest.raises(AckwrightError, match="no answer"):
        ClusterSource(kubernetes, None, "a cluster")


def test_a_recorded_cluster_is_shown_again(tmp_path: Path) -> None:
    source = ClusterSource(Cluster(), "ops", "a cluster")
    file = tmp_path / "state.json"
    file.write_text(json.dumps(record(source, recorded.AT)))
    again = RecordedSource(file)
    assert again.pipelines().resources == source.pipelines().resources
    read, expected = again.details("ops", "delayed-flights"), source.details("ops", "delayed-flights")
    assert read
    assert expected
    assert read[1].as_json() == json.loads(json.dumps(expected[1].as_json()))
