"""Evaluates rules with Prometheus' promtool on the operator's metrics. Building promtool once needs Go."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from ackwright.metrics import Metrics
from ackwright.worklist import Worklist
from lab import binaries
from lab.cluster import print_progress

Object = dict[str, Any]
Scrape = Mapping[str, float]  # samples by series
Value = tuple[Mapping[str, str], float]  # labels, value
Alert = tuple[Mapping[str, str], Mapping[str, str]]  # labels, annotations

PIPELINE = ("ops", "p")  # namespace and name
_RECONCILE_SECONDS = 0.2


@functools.cache
def program() -> Path:
    """The path of promtool."""
    return binaries.program("promtool", print_progress)


def scrape(
    resource: Object | None,
    *,
    reconciles: int = 0,
    failures: int = 0,
    waiting: float = 0,
    lost: bool = False,
    leads: bool = True,
    shards: int = 1,
    unobserved: float = 0,
    pod: str = "ackwright-operator-1",
) -> Scrape:
    """The samples of an operator with this pipeline, with the labels that a PodMonitor adds.

    lost: whether its namespace is. leads: whether this replica does. waiting: for how many seconds a pipeline has been
    due after a change. unobserved: for how many seconds the pipeline has not been observed.
    """
    observed_at = ((resource or {}).get("status") or {}).get("observedAt", "2026-11-21T12:00:00Z")
    now = datetime.fromisoformat(observed_at) + timedelta(seconds=unobserved)
    seconds = 0.0
    worklist = Worklist(lambda: seconds)
    worklist.add(PIPELINE)
    seconds = float(waiting)
    pipelines = {PIPELINE: resource} if resource and leads else {}
    metrics = Metrics(
        lambda: pipelines, worklist, lambda: {PIPELINE[0]: lost}, lambda: leads, lambda: now, shards=shards
    )
    for _ in range(reconciles):
        metrics.duration.observe(_RECONCILE_SECONDS)
    if failures:
        metrics.errors.labels("KubernetesRefused").inc(failures)
    return samples(metrics.registry, operator_labels(pod))


def operator_labels(pod: str) -> Mapping[str, str]:
    """The labels that the operator's PodMonitor adds."""
    return {
        "container": "operator",
        "endpoint": "metrics",
        "instance": f"{pod}:8080",
        "job": "ackwright-operator",
        "pod": pod,
    }


def samples(registry: CollectorRegistry, target_labels: Mapping[str, str]) -> Scrape:
    """What a process exports now, with the labels of its target."""

    def name(sample: Sample) -> str:
        labels = sorted({**sample.labels, **target_labels}.items())
        return f"{sample.name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in labels)}}}"

    return {
        name(sample): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def series(scrapes: Sequence[Scrape]) -> list[Object]:
    """The scrapes as promtool's input, one per minute. Series that a scrape no longer contains are stale."""
    names = dict.fromkeys(name for samples in scrapes for name in samples)
    return [{"series": name, "values": " ".join(_values(name, scrapes))} for name in names]


def _values(name: str, scrapes: Sequence[Scrape]) -> Iterable[str]:
    was_present = False
    for samples in scrapes:
        if name in samples:
            yield str(samples[name])
        else:
            yield "stale" if was_present else "_"
        was_present = name in samples


def lint_errors(directory: Path, groups: Sequence[Object]) -> str:
    """promtool's output if the groups are invalid, otherwise an empty text."""
    file = directory / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": list(groups)}))
    completed = _run("check", "rules", "--lint=all", "--lint-fatal", file)
    return completed.stdout + completed.stderr if completed.returncode else ""


def alerts_at(minute: int, alerts: Mapping[str, Sequence[Alert]]) -> list[Object]:
    """Test cases: at this minute exactly these alerts of each name fire."""
    return [
        {
            "eval_time": f"{minute}m",
            "alertname": name,
            "exp_alerts": [
                {"exp_labels": dict(labels), "exp_annotations": dict(annotations)} for labels, annotations in firing
            ],
        }
        for name, firing in alerts.items()
    ]


def values_at(minute: int, expressions: Mapping[str, Mapping[str, float]]) -> list[Object]:
    """Test cases: at this minute each expression returns these samples, by the text of their labels."""
    return [
        {
            "expr": expression,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in expressions.items()
    ]


def names_at(minute: int, names: Iterable[str]) -> list[Object]:
    """Test cases: at this minute alerts with exactly these names fire."""
    return values_at(
        minute,
        {
            'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0': {
                f'{{alertname="{name}"}}': 1.0 for name in names
            }
        },
    )


def differences(
    directory: Path,
    groups: Sequence[Object],
    scrapes: Sequence[Scrape],
    *,
    alerts: Sequence[Object] = (),
    values: Sequence[Object] = (),
) -> str:
    """promtool's output if a test case fails, otherwise an empty text."""
    rules = directory / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": list(groups)}))
    case = {
        "interval": "1m",
        "input_series": series(scrapes),
        "alert_rule_test": list(alerts),
        "promql_expr_test": list(values),
    }
    file = directory / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [case]}, width=100_000)
    )
    completed = _run("test", "rules", file)
    return completed.stdout + completed.stderr if completed.returncode else ""


def evaluate(directory: Path, scrapes: Sequence[Scrape], queries: Sequence[tuple[str, int]]) -> list[list[Value]]:
    """What each expression returns at its minute. Raises ValueError for an expression that cannot be evaluated."""
    # promtool prints samples only if they differ from the expected ones, so each case expects one that never exists.
    never = [{"labels": "never", "value": 0}]
    cases = [{"expr": expression, "eval_time": f"{minute}m", "exp_samples": never} for expression, minute in queries]
    file = directory / "queries.yaml"  # JSON is YAML, and faster to write
    test = {"interval": "1m", "input_series": series(scrapes), "promql_expr_test": cases}
    file.write_text(json.dumps({"evaluation_interval": "1m", "tests": [test]}))
    output = _run("test", "rules", file, timeout=600).stderr
    results = re.findall(r"^ +got: (.*)$", output, re.MULTILINE)
    if len(results) != len(cases):
        raise ValueError(f"promtool has not evaluated all {len(cases)} expressions: {output[-2000:]}")
    return [[_value(*value) for value in _SAMPLE.findall(result)] for result in results]


_SAMPLE = re.compile(r'\{((?:"(?:[^"\\]|\\.)*"|[^"}])*)\} ([^ ,]+)')
_LABEL = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*")')


def _value(labels: str, value: str) -> Value:
    return {name: json.loads(text) for name, text in _LABEL.findall(labels)}, float(value)


def _run(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=timeout, check=False)
