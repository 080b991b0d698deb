"""Alerts and dashboard speak of metrics that there are, with labels and values that they have. When alerts are given: tests/chart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ackwright.conditions import ORDER
from ackwright.metrics import Metrics
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress, ProgressMetrics
from unit.documents import CHART, DASHBOARD, REASONS
from unit.stream.flights_job import JOB
from unit.world import World

_VALUES = {"condition": set(ORDER), "status": {"True", "False", "Unknown"}, "reason": set(REASONS)}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring) \(([^)]*)\)")

Exported = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def exported() -> Exported:
    """The labels of each metric, as an operator with one pipeline that has had a failure tells them, and a driver that has had a batch."""
    resource = World().settle().resource
    resource["status"]["delivery"] = {"lag": 1, "batch": 2}
    metrics = Metrics(lambda: {("ops", "p"): resource}, lambda: 0)
    metrics.errors.labels("Unexpected").inc()
    progress, driver = Progress(JOB), CollectorRegistry()
    progress.batch(1, {Lane("in", 0): 1}, 1, 1.0)
    driver.register(ProgressMetrics(progress))
    found: dict[str, set[str]] = {}
    for registry in (metrics.registry, driver):
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                found.setdefault(sample.name, set()).update(sample.labels)
    return found


def rules() -> list[dict[str, Any]]:
    """Of the template itself, which needs no helm: what is chosen in the values is 0."""
    text = (CHART / "templates" / "prometheusrule.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("{{-")]

    def plain(found: re.Match[str]) -> str:
        return json.dumps(found[1]) if found[1] else "0"

    rule = yaml.safe_load(re.sub(r"\{\{ `(.*?)` \| quote \}\}|\{\{.*?\}\}", plain, "\n".join(lines)))
    found = [rule for group in rule["spec"]["groups"] for rule in group["rules"]]
    assert len(found) == text.count("- alert:")
    return found


def queries() -> Iterator[tuple[str, str]]:
    """Each query of the dashboard, with the legend of its series."""
    for panel in DASHBOARD["panels"]:
        yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])


def expressions() -> list[str]:
    variables = (v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query")
    return [*(rule["expr"] for rule in rules()), *(expression for expression, _ in queries()), *variables]


def named(expression: str) -> list[str]:
    return re.findall(r"\backwright_\w+", expression)


def labels(expression: str, exported: Exported) -> set[str]:
    """Of what it gives."""
    grouped = re.match(r"(?:\w+\([\d.]+, )?\w+ by \(([^)]*)\)", expression)
    return set(re.split(r",\s*", grouped[1])) if grouped else exported[named(expression)[0]]


def unknown(expression: str, exported: Exported) -> set[str]:
    """Metrics, labels, and values of labels that there are not. What is grouped or matched by is a label of every metric."""
    wrong = set(named(expression)) - set(exported)
    for name, selector in re.findall(r"\b(ackwright_\w+)\{([^}]*)\}", expression):
        for label, values in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', selector):
            wrong |= {f"{name}.{label}"} if label not in exported.get(name, ()) else set()
            wrong |= set(values.split("|")) - _VALUES[label] if label in _VALUES else set()
    for grouped in _GROUPING.findall(expression):
        wrong |= {
            f"{name}.{label}"
            for name in named(expression)
            for label in re.split(r",\s*", grouped)
            if label not in exported.get(name, ())
        }
    wrong |= {
        f"label_values.{label}"
        for label in re.findall(r"^label_values\(.*, (\w+)\)$", expression)
        if label not in labels(expression, exported)
    }
    return wrong


def test_every_metric_label_and_value_that_is_named_is_exported(exported: Exported) -> None:
    found = expressions()
    assert len(found) > 20
    assert {e: unknown(e, exported) for e in found if unknown(e, exported)} == {}


@pytest.mark.parametrize(
    ("expression", "missing"),
    [
        ("ackwright_pipeline_lags > 1", "ackwright_pipeline_lags"),
        ('ackwright_pipeline_lag{pipeline="p"}', "ackwright_pipeline_lag.pipeline"),
        ('ackwright_pipeline_condition{condition="Met"}', "Met"),
        ('ackwright_pipeline_condition{condition="Ready",status="true"}', "true"),
        ('ackwright_pipeline_condition{reason=~"Suspended|Complete"}', "Complete"),
        ("sum by (topic) (ackwright_worklist)", "ackwright_worklist.topic"),
        (
            "ackwright_pipeline_lag unless on (namespace, name) ackwright_topic_replicas",
            "ackwright_topic_replicas.name",
        ),
        ("label_values(ackwright_pipeline_condition, pipeline)", "label_values.pipeline"),
    ],
)
def test_what_is_not_exported_is_found(exported: Exported, expression: str, missing: str) -> None:
    """The control of the test above."""
    assert unknown(expression, exported) == {missing}


def test_every_metric_of_pipelines_and_topics_is_used(exported: Exported) -> None:
    used = {name for e in expressions() for name in named(e)}
    assert {n for n in exported if n.startswith(("ackwright_pipeline", "ackwright_topic"))} - used == set()


def test_an_alert_says_what_is_wrong_and_what_to_do_by_labels_that_it_has(exported: Exported) -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        said = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels(rule["expr"], exported), rule["alert"]


def test_a_legend_has_labels_that_there_are_and_tells_pipelines_and_topics_apart(exported: Exported) -> None:
    for expression, legend in queries():
        if not legend:  # one number, or a table
            continue
        there = labels(expression, exported)
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= there, expression
        assert {x for x in ("namespace", "name", "pipeline", "topic") if x in there} <= set(
            re.findall(r"\{\{(\w+)\}\}", legend)
        ), expression


def test_the_table_orders_columns_that_there_are(exported: Exported) -> None:
    tables = [p for p in DASHBOARD["panels"] if p["type"] == "table"]
    assert tables
    for panel in tables:
        there = {label for target in panel["targets"] for label in labels(target["expr"], exported)}
        assert {c for t in panel["transformations"] for c in t["options"]["indexByName"]} == there
