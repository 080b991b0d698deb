"""What the console shows of pipelines in every state that the operator writes."""

from __future__ import annotations

from typing import Any

import pytest

from ackwright.console.chain import plan_view
from ackwright.console.views import Details, Remedies, detail, lanes, row, spec_yaml
from ackwright.planning.declared import parse_resource
from unit.console import recorded

REMEDIES = Remedies({"NotEnoughReplicas": {"cause": "c", "remedy": "restart the broker", "command": "x NAME"}})


@pytest.mark.parametrize(
    ("name", "health", "met"),
    [
        ("delayed-flights", "ready", "True"),
        ("ledger", "attention", "False"),  # the guarantee is not met
        ("stock", "attention", "True"),  # stalled
        ("sensor-metrics", "waiting", "True"),
        ("access-log", "suspended", "True"),
        ("returns", "attention", "Unknown"),  # was never valid
        ("daily-export", "ready", "True"),
        ("fraud-signals", "waiting", "True"),
        ("new-arrivals", "waiting", ""),
    ],
)
def test_the_health_of_each_state(name: str, health: str, met: str) -> None:
    shown = row(recorded.resource(name))
    assert (shown["health"], shown["met"]) == (health, met)


def test_a_pipeline_that_was_not_reconciled_says_so() -> None:
    shown = row(recorded.resource("new-arrivals"))
    assert (shown["reason"], shown["lag"]) == ("NotReconciled", None)
    assert "not reconciled" in shown["message"]


def test_a_condition_that_is_not_good_has_its_remedy() -> None:
    shown = detail(recorded.resource("ledger"), Details(), REMEDIES)
    conditions = {c["type"]: c for c in shown["conditions"]}
    assert not conditions["GuaranteeMet"]["good"]
    assert conditions["GuaranteeMet"]["remedy"]["remedy"] == "restart the broker"
    assert conditions["Stalled"]["good"]
    assert conditions["JobRunning"]["remedy"] is None


@pytest.mark.parametrize(
    ("kind", "status", "reason", "good", "expected"),
    [
        ("RolledBack", "True", "DeadlineExceeded", False, False),
        ("Ready", "False", "Starting", False, True),
        ("Ready", "True", "Delivering", True, False),
    ],
)
def test_what_is_good_and_what_is_expected(kind: str, status: str, reason: str, good: bool, expected: bool) -> None:
    condition = {"type": kind, "status": status, "reason": reason}
    resource = {**recorded.resource("ledger"), "status": {"conditions": [condition]}}
    [shown] = detail(resource, Details(), REMEDIES)["conditions"]
    assert (shown["good"], shown["expected"]) == (good, expected)


def test_the_chain_has_one_weakest_link() -> None:
    chain = detail(recorded.resource("delayed-flights"), Details(), REMEDIES)["chain"]
    assert [link["name"] for link in chain["links"]][:2] == ["upstream producer", "source topic"]
    assert [link["name"] for link in chain["links"] if link["weakest"]] == ["downstream consumer"]
    assert all(set(s) == {"name", "value", "reason"} for link in chain["links"] for s in link["settings"])


def test_an_invalid_edit_shows_the_chain_of_the_spec_in_force() -> None:
    shown = detail(recorded.resource("invoices"), Details(), REMEDIES)
    assert "spec.source.topics" in shown["invalid"]
    assert shown["chain"] is not None


def test_a_spec_that_was_never_valid_has_no_chain() -> None:
    shown = detail(recorded.resource("returns"), Details(), REMEDIES)
    assert "spec.source.topics" in shown["invalid"]
    assert shown["chain"] is None


@pytest.mark.parametrize("name", recorded.PIPELINES)
def test_each_recorded_pipeline_has_a_view(name: str) -> None:
    read = Details.of_json(recorded.state()["details"][f"{recorded.PIPELINES[name][0]}/{name}"])
    assert detail(recorded.resource(name), read, REMEDIES)["row"]["name"] == name


def test_a_driver_that_has_not_measured_its_lag_reports_none() -> None:
    row = recorded.resource("delayed-flights")
    for report, expected in (
        ({"lag": 0, "ends": {}}, None),
        ({"lag": 0, "ends": {"in": {"0": 9}}}, 0),
        ({"lag": 7}, 7),
    ):
        shown = detail(row, Details(progress={"positions": {}, **report}), REMEDIES)
        assert shown["progress"].get("lag") == expected


def test_lanes_are_in_the_order_of_their_partitions_and_have_a_lag_if_the_ends_are_known() -> None:
    report: dict[str, Any] = {"positions": {"in": {"10": 5, "9": 7}}}
    assert [(lane["partition"], lane["position"], lane["lag"]) for lane in lanes(report)] == [
        (9, 7, None),
        (10, 5, None),
    ]
    assert [lane["lag"] for lane in lanes({**report, "ends": {"in": {"9": 9, "10": 4}}})] == [2, 0]
    assert lanes(None) == []


def test_the_latest_events_come_first() -> None:
    events = [recorded.event(f"2026-01-01T00:00:{s:02}Z", "Normal", f"R{s}", "", "p") for s in (1, 3, 2)]
    shown = detail(recorded.resource("stock"), Details(events=events), REMEDIES)["events"]
    assert [e["reason"] for e in shown] == ["R3", "R2", "R1"]


def test_the_text_of_a_pipeline_plans_to_no_change() -> None:
    resource = recorded.resource("delayed-flights")
    resource["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "team": "a"}
    text = spec_yaml(resource)
    assert "last-applied" not in text
    assert "team: a" in text
    shown = plan_view(text, parse_resource(resource)[0])
    assert (shown["errors"], shown["edit"]) == ([], {"takes": None, "changes": []})


def test_a_plan_reports_what_an_edit_takes() -> None:
    resource = recorded.resource("delayed-flights")
    before, text = parse_resource(resource)[0], spec_yaml(resource)
    restarted = plan_view(text.replace(" WHERE value IS NOT NULL", ""), before)["edit"]
    assert (restarted["takes"], restarted["changes"][0]["field"]) == ("restart", "spec.transform.sql")
    assert (
        plan_view(text.replace("name: delayed-flights", "name: other"), before)["edit"]["other"]
        == "ops/delayed-flights"
    )


def test_a_plan_reports_every_error_with_its_place() -> None:
    text = spec_yaml(recorded.resource("delayed-flights")).replace("guarantee: exactly-once", "guarantee: twice")
    errors = plan_view(text)["errors"]
    assert [(e["line"], e["reason"]) for e in errors] == [(7, "InvalidSpec")]
    assert "spec.guarantee = 'twice'" in errors[0]["message"]
    assert plan_view("a: [")["errors"][0]["message"].startswith("pipeline.yaml: not valid YAML")
    assert plan_view("")["errors"]


def test_a_plan_has_summary_and_chain() -> None:
    shown = plan_view(spec_yaml(recorded.resource("stock")))
    assert shown["summary"]["pipeline"] == "shop/stock"
    assert shown["edit"] is None
    assert sum(link["weakest"] for link in shown["chain"]["links"]) == 1
