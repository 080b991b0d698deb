"""Alerts and dashboard speak of metrics that there are, with labels and values that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ackwright.conditions import ORDER
from ackwright.metrics import Metrics
from chart.rendered import CHART, objects
from unit.world import World

DASHBOARD = json.loads((CHART / "dashboards" / "ackwright.json").read_text())
_GIVEN_BY_PROMETHEUS = {"le"}


@pytest.fixture(scope="module")
def exported() -> Mapping[str, set[str]]:
    """The labels of each metric, as an operator with one pipeline that has had a failure tells them."""
    resource = World().settle().resource
    resource["status"]["delivery"] = {"lag": 1, "batch": 2}
    metrics = Metrics(lambda: {("ops", "p"): resource}, lambda: 0)
    metrics.errors.labels("Unexpected").inc()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules(values: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    found = objects({"prometheusRule": {"enabled": True, **(values or {})}})["PrometheusRule", "ackwright"]
    return {rule["alert"]: rule for group in found["spec"]["groups"] for rule in group["rules"]}


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules().values())
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query")


def unknown(expression: str, exported: Mapping[str, set[str]]) -> set[str]:
    """Metrics, labels and conditions that there are not."""
    wrong = set()
    labels = set().union(*exported.values()) | _GIVEN_BY_PROMETHEUS
    for name, selector in re.findall(r"\b(ackwright_\w+)(?:\{([^}]*)\})?", expression):
        wrong |= {name} - set(exported)
        wrong |= {f"{name}.{label}" for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector) if label not in exported.get(name, ())}
        for condition in re.findall(r'condition=~?"([^"]*)"', selector):
            wrong |= set(condition.split("|")) - set(ORDER)
    for grouped in re.findall(r"\b(?:by|without) \(([^)]*)\)", expression):
        wrong |= {label.strip() for label in grouped.split(",")} - labels
    return wrong


def test_every_metric_label_and_condition_that_is_named_is_exported(exported: Mapping[str, set[str]]) -> None:
    found = list(expressions())
    assert len(found) > 20
    assert {e: unknown(e, exported) for e in found if unknown(e, exported)} == {}


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("ackwright_pipeline_lags > 1", "ackwright_pipeline_lags"),
        ('ackwright_pipeline_lag{pipeline="p"}', "ackwright_pipeline_lag.pipeline"),
        ('ackwright_pipeline_condition{condition="Met"}', "Met"),
        ("sum by (topics) (ackwright_worklist)", "topics"),
    ],
)
def test_what_is_not_exported_is_found(exported: Mapping[str, set[str]], expression: str, missing: str) -> None:
    assert missing in unknown(expression, exported)


def test_every_metric_of_pipelines_and_topics_is_used(exported: Mapping[str, set[str]]) -> None:
    used = {name for e in expressions() for name in re.findall(r"\backwright_\w+", e)}
    assert {n for n in exported if n.startswith(("ackwright_pipeline", "ackwright_topic"))} - used == set()


def test_there_is_an_alert_for_each_trouble_and_its_sentence_names_labels_that_it_has(exported: Mapping[str, set[str]]) -> None:
    found = rules()
    assert {"AckwrightGuaranteeNotMet", "AckwrightStalled", "AckwrightLag", "AckwrightInSyncBelowMinimum"} <= set(found)
    for rule in found.values():
        metric = re.findall(r"\backwright_\w+", rule["expr"])[0]
        grouped = re.findall(r"\bby \(([^)]*)\)", rule["expr"])
        labels = {label.strip() for label in grouped[0].split(",")} if grouped else exported[metric]
        said = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert re.fullmatch(r"\d+m", rule["for"])


def test_what_is_chosen_for_alerts_is_in_them() -> None:
    found = rules({"lag": 5_000_000, "lagFor": "1h", "notReadyFor": "30m", "alertLabels": {"team": "data", "severity": "page"}})
    assert found["AckwrightLag"]["expr"] == "ackwright_pipeline_lag > 5000000"
    assert (found["AckwrightLag"]["for"], found["AckwrightNotReady"]["for"]) == ("1h", "30m")
    assert found["AckwrightLag"]["labels"] == {"severity": "warning", "team": "data"}


def test_the_dashboard_is_the_file_and_no_two_panels_lie_on_each_other() -> None:
    found = objects({"dashboard": {"enabled": True, "labels": {"grafana": "yes"}}})["ConfigMap", "ackwright-dashboard"]
    assert json.loads(found["data"]["ackwright.json"]) == DASHBOARD
    assert found["metadata"]["labels"]["grafana"] == "yes"
    cells = [
        (p["gridPos"]["x"] + x, p["gridPos"]["y"] + y)
        for p in DASHBOARD["panels"]
        for x in range(p["gridPos"]["w"])
        for y in range(p["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({p["id"] for p in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
