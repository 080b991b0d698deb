"""Alerts and dashboard use existing metrics, labels and values. tests/chart tests when alerts fire."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ackwright.conditions.transitions import ORDER
from ackwright.metrics import Metrics
from ackwright.worklist import Worklist
from ackwright_stream.memory_use import ExecutorUse, MemoryUse
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress, ProgressMetrics
from minimal_job import minimal_job
from unit.documents import CHART, DASHBOARD, PIPELINE_DASHBOARD, REASONS
from unit.world import World

_VALUES = {"condition": set(ORDER), "status": {"True", "False", "Unknown"}, "reason": set(REASONS)}
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring) \(([^)]*)\)")

Exported = Mapping[str, set[str]]


@pytest.fixture(scope="module")
def exported() -> Exported:
    """The labels of each metric, exported by an operator with a failed pipeline and by a driver after a batch."""
    resource = World().settle().resource
    resource["status"]["delivery"] = {"lag": 1, "batch": 2}
    metrics = Metrics(lambda: {("ops", "p"): resource}, Worklist(), lambda: {"ops": False})
    metrics.errors.labels("Unexpected").inc()
    progress, driver = Progress(minimal_job()), CollectorRegistry()
    progress.batch(1, {Lane("in", 0): 1}, 1, 1.0)
    progress.memory = MemoryUse(1, 2, (ExecutorUse("1", 1, 1, 1.0, 0),))
    driver.register(ProgressMetrics(progress))
    labels_of: dict[str, set[str]] = {}
    for registry in (metrics.registry, driver):
        for family in text_string_to_metric_families(generate_latest(registry).decode()):
            for sample in family.samples:
                labels_of.setdefault(sample.name, set()).update(sample.labels)
                if registry is driver:  # a PodMonitor adds it
                    labels_of[sample.name].add("namespace")
    return labels_of


def rules() -> list[dict[str, Any]]:
    """The rules in the chart's template, read without helm: the chart's values are replaced by 0."""
    text = (CHART / "templates" / "prometheusrule.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("{{-")]

    def plain(expression: re.Match[str]) -> str:
        return json.dumps(expression[1]) if expression[1] else "0"

    resource = yaml.safe_load(re.sub(r"\{\{ `(.*?)` \| quote \}\}|\{\{.*?\}\}", plain, "\n".join(lines)))
    alerts = [rule for group in resource["spec"]["groups"] for rule in group["rules"]]
    assert len(alerts) == text.count("- alert:")
    return alerts


def queries() -> Iterator[tuple[str, str]]:
    """The dashboards' queries and the legends of their series."""
    for dashboard in (DASHBOARD, PIPELINE_DASHBOARD):
        for panel in dashboard["panels"]:
            yield from ((target["expr"], target["legendFormat"]) for target in panel["targets"])


def expressions() -> list[str]:
    variables = (
        v["query"]["query"]
        for dashboard in (DASHBOARD, PIPELINE_DASHBOARD)
        for v in dashboard["templating"]["list"]
        if v["type"] == "query"
    )
    return [*(rule["expr"] for rule in rules()), *(expression for expression, _ in queries()), *variables]


def metrics_in(expression: str) -> list[str]:
    return re.findall(r"\backwright_\w+", expression)


def labels(expression: str, exported: Exported) -> set[str]:
    """The labels of the expression's result."""
    if re.match(r"(?:sum|max|min|count)\(", expression):  # aggregated over everything
        return set()
    grouped = re.match(r"(?:\w+\([\d.]+, )?\w+ by \(([^)]*)\)", expression)
    return set(re.split(r",\s*", grouped[1])) if grouped else exported[metrics_in(expression)[0]]


def unknown(expression: str, exported: Exported) -> set[str]:
    """The metrics, labels and label values in the expression that are not exported.

    Every metric of the expression must have all labels for grouping and matching.
    """
    wrong = set(metrics_in(expression)) - set(exported)
    for name, selector in re.findall(r"\b(ackwright_\w+)\{([^}]*)\}", expression):
        for label, values in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"', selector):
            wrong |= {f"{name}.{label}"} if label not in exported.get(name, ()) else set()
            wrong |= set(values.split("|")) - _VALUES[label] if label in _VALUES else set()
    for grouped in _GROUPING.findall(expression):
        wrong |= {
            f"{name}.{label}"
            for name in metrics_in(expression)
            for label in re.split(r",\s*", grouped)
            if label not in exported.get(name, ())
        }
    wrong |= {
        f"label_values.{label}"
        for label in re.findall(r"^label_values\(.*, (\w+)\)$", expression)
        if label not in labels(expression, exported)
    }
    return wrong


def test_all_metrics_labels_and_values_in_expressions_are_exported(exported: Exported) -> None:
    all_expressions = expressions()
    assert len(all_expressions) > 20
    assert {e: unknown(e, exported) for e in all_expressions if unknown(e, exported)} == {}


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
def test_metrics_labels_and_values_that_are_not_exported_are_detected(
    exported: Exported, expression: str, missing: str
) -> None:
    """The control of the test above."""
    assert unknown(expression, exported) == {missing}


def test_every_metric_of_pipelines_and_topics_is_used(exported: Exported) -> None:
    used = {name for e in expressions() for name in metrics_in(e)}
    assert {n for n in exported if n.startswith(("ackwright_pipeline", "ackwright_topic"))} - used == set()


def test_an_alert_has_summary_and_description_with_existing_labels(exported: Exported) -> None:
    for rule in rules():
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        annotations = " ".join(rule["annotations"].values())
        assert set(re.findall(r"\$labels\.(\w+)", annotations)) <= labels(rule["expr"], exported), rule["alert"]


def test_a_legend_has_existing_labels_and_distinguishes_pipelines_and_topics(exported: Exported) -> None:
    for expression, legend in queries():
        if not legend:  # one number, or a table
            continue
        existing = labels(expression, exported)
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= existing, expression
        assert {x for x in ("namespace", "name", "pipeline", "topic") if x in existing} <= set(
            re.findall(r"\{\{(\w+)\}\}", legend)
        ), expression


def test_the_dashboard_of_a_pipeline_shows_every_loss_of_its_driver(exported: Exported) -> None:
    text = json.dumps(PIPELINE_DASHBOARD)
    losses = ("abandoned_records", "expired_records", "malformed_records", "dead_letters", "late_rows")
    assert [name for name in losses if f"ackwright_{name}_total" not in text] == []
    assert {f"ackwright_{name}_total" for name in losses} <= set(exported)
    for panel in PIPELINE_DASHBOARD["panels"]:
        for target in panel["targets"]:
            selectors = re.findall(r"\{([^}]*)\}", target["expr"])
            assert all('namespace="$namespace"' in s for s in selectors), "pipelines of two namespaces may share a name"


def test_the_dashboard_of_a_pipeline_selects_its_driver_by_the_label_that_the_driver_exports() -> None:
    driver = CollectorRegistry()
    driver.register(ProgressMetrics(Progress(minimal_job())))
    exported = {family.name: sample.labels for family in driver.collect() for sample in family.samples}
    expressions = [t["expr"] for panel in PIPELINE_DASHBOARD["panels"] for t in panel["targets"]]
    selected = {
        metric.removesuffix("_total"): pipeline.replace("$namespace", "ops").replace("$pipeline", "flights")
        for expression in expressions
        for metric, pipeline in re.findall(r'\b(ackwright_\w+)\{[^}]*\bpipeline="([^"]*)"', expression)
    }
    of_driver = selected.keys() & exported.keys()
    assert {"ackwright_records_per_second", "ackwright_restarts"} <= of_driver
    assert {m: selected[m] for m in of_driver} == {m: exported[m]["pipeline"] for m in of_driver}


def test_the_table_orders_existing_columns(exported: Exported) -> None:
    tables = [p for p in DASHBOARD["panels"] if p["type"] == "table"]
    assert tables
    for panel in tables:
        existing = {label for target in panel["targets"] for label in labels(target["expr"], exported)}
        assert {c for t in panel["transformations"] for c in t["options"]["indexByName"]} == existing
