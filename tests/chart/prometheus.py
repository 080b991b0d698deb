"""Prometheus' own judgement of rules: promtool, on what the operator exports. promtool is built from its module once; that needs Go."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ackwright.metrics import Metrics
from lab import binaries

Object = dict[str, Any]
Scrape = Mapping[str, float]  # what Prometheus has from it, by series
Alert = tuple[Mapping[str, str], Mapping[str, str]]  # labels, annotations

PIPELINE = ("ops", "p")  # namespace and name
_LOOK_S = 0.2


@functools.cache
def program() -> Path:
    return binaries.program("promtool", lambda line: print(line, file=sys.stderr))


def scrape(resource: Object | None, *, looks: int = 0, failures: int = 0, pod: str = "ackwright-operator-1") -> Scrape:
    """Of an operator that knows this pipeline; with the labels that a PodMonitor adds."""
    metrics = Metrics(lambda: {PIPELINE: resource} if resource else {}, lambda: 0)
    for _ in range(looks):
        metrics.duration.observe(_LOOK_S)
    if failures:
        metrics.errors.labels("KubernetesRefused").inc(failures)
    added = {
        "container": "operator",
        "endpoint": "metrics",
        "instance": f"{pod}:8080",
        "job": "ackwright-operator",
        "pod": pod,
    }
    return {
        f"{sample.name}{{{','.join(f'{k}={json.dumps(v)}' for k, v in sorted((sample.labels | added).items()))}}}": sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def series(scrapes: Sequence[Scrape]) -> list[Object]:
    """As promtool takes them, one scrape a minute. What a scrape no longer has is marked as stale, as Prometheus does it."""
    names = dict.fromkeys(name for scraped in scrapes for name in scraped)
    return [{"series": name, "values": " ".join(_values(name, scrapes))} for name in names]


def _values(name: str, scrapes: Sequence[Scrape]) -> Iterable[str]:
    seen = False
    for scraped in scrapes:
        if name in scraped:
            yield str(scraped[name])
        else:
            yield "stale" if seen else "_"
        seen = name in scraped


def refusal(place: Path, groups: Sequence[Object]) -> str:
    """What promtool says against the groups, nothing if they are well."""
    file = place / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": list(groups)}))
    done = _run("check", "rules", "--lint=all", "--lint-fatal", file)
    return done.stdout + done.stderr if done.returncode else ""


def alerts_at(minute: int, alerts: Mapping[str, Sequence[Alert]]) -> list[Object]:
    """That at this minute these alerts are given, by name: all of that name, and none if there are none."""
    return [
        {
            "eval_time": f"{minute}m",
            "alertname": name,
            "exp_alerts": [
                {"exp_labels": dict(labels), "exp_annotations": dict(annotations)} for labels, annotations in found
            ],
        }
        for name, found in alerts.items()
    ]


def values_at(minute: int, expressions: Mapping[str, Mapping[str, float]]) -> list[Object]:
    """That at this minute these expressions give these samples, by the text of their labels."""
    return [
        {
            "expr": expression,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for expression, samples in expressions.items()
    ]


def names_at(minute: int, names: Iterable[str]) -> list[Object]:
    """That at this minute alerts of these names are given, and of no others."""
    return values_at(
        minute,
        {
            'count by (alertname) (ALERTS{alertstate="firing"}) > bool 0': {
                f'{{alertname="{name}"}}': 1.0 for name in names
            }
        },
    )


def differences(
    place: Path,
    groups: Sequence[Object],
    scrapes: Sequence[Scrape],
    *,
    alerts: Sequence[Object] = (),
    values: Sequence[Object] = (),
) -> str:
    """What promtool finds otherwise than expected, nothing if all is."""
    rules = place / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": list(groups)}))
    case = {
        "interval": "1m",
        "input_series": series(scrapes),
        "alert_rule_test": list(alerts),
        "promql_expr_test": list(values),
    }
    file = place / "test.yaml"
    file.write_text(
        yaml.safe_dump({"rule_files": [rules.name], "evaluation_interval": "1m", "tests": [case]}, width=100_000)
    )
    done = _run("test", "rules", file)
    return done.stdout + done.stderr if done.returncode else ""


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program(), *arguments], capture_output=True, text=True, timeout=60, check=False)
