"""The Grafana dashboard of one pipeline, as JSON for the chart. `make chart` writes it.

Driver metrics have no namespace by themselves: a scrape by the chart's PodMonitor adds it.
"""

from __future__ import annotations

import json
from typing import Any

Panel = dict[str, Any]

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_OPERATOR = 'namespace="$namespace",name="$pipeline"'
_DRIVER = 'namespace="$namespace",pipeline="$pipeline"'
_TOPIC = _DRIVER  # the operator's metrics of topics have the same labels
_COUNTERS = ("abandoned_records", "expired_records", "malformed_records", "dead_letters", "skipped_lanes", "restarts")


def pipeline() -> str:
    """The text of the file."""
    panels = [
        _truth("Guarantee met", "GuaranteeMet", 0),
        _truth("Ready", "Ready", 6),
        _number("Lag", f"max(ackwright_pipeline_lag{{{_OPERATOR}}})", 12, "short"),
        _number("Records per second", f"sum(ackwright_records_per_second{{{_DRIVER}}})", 18, "short"),
        _series("Lag", [(f"max(ackwright_pipeline_lag{{{_OPERATOR}}})", "")], 0, 4, "short"),
        _series("Records per second", [(f"sum(ackwright_records_per_second{{{_DRIVER}}})", "")], 12, 4, "short"),
        _series("Duration of a batch", [(f"max(ackwright_batch_seconds{{{_DRIVER}}})", "")], 0, 12, "s"),
        _series(
            "Batches per minute", [(f"sum(rate(ackwright_batches_total{{{_DRIVER}}}[5m])) * 60", "")], 12, 12, "short"
        ),
        _series(
            "Offsets per second, by topic",
            [(f"sum by (topic) (deriv(ackwright_position{{{_DRIVER}}}[5m]))", "{{topic}}")],
            *(0, 20, "short"),
        ),
        _series(
            "In five minutes",
            [
                (f"sum(increase(ackwright_{counter}_total{{{_DRIVER}}}[5m]))", counter.replace("_", " "))
                for counter in _COUNTERS
            ],
            *(12, 20, "short"),
        ),
        _series(
            "In-sync replicas above min.insync.replicas",
            [
                (
                    f"min by (topic) (ackwright_topic_in_sync_replicas{{{_TOPIC}}} - "
                    f"ackwright_topic_min_insync_replicas{{{_TOPIC}}})",
                    "{{topic}}",
                )
            ],
            *(0, 28, "short"),
        ),
        _series(
            "Duration of the driver's start",
            [(f"max by (part) (ackwright_start_seconds{{{_DRIVER}}})", "{{part}}")],
            *(12, 28, "s"),
        ),
        _series(
            "Heap: the driver's now, and the peak of each executor",
            [
                (f"max(ackwright_jvm_heap_bytes{{{_DRIVER}}})", "driver"),
                (f"max(ackwright_jvm_heap_max_bytes{{{_DRIVER}}})", "driver, at most"),
                (
                    f'max by (executor) (ackwright_executor_heap_peak_bytes{{{_DRIVER},executor!="driver"}})',
                    "executor {{executor}}, peak",
                ),
            ],
            *(0, 36, "bytes"),
        ),
        _series(
            "Share of time in garbage collection",
            [(f"max by (executor) (rate(ackwright_executor_gc_seconds_total{{{_DRIVER}}}[5m]))", "{{executor}}")],
            *(12, 36, "percentunit"),
        ),
        _series("Executors", [(f"max(ackwright_executors{{{_DRIVER}}})", "")], 0, 44, "short"),
        _series(
            "Failed tasks in five minutes",
            [
                (
                    f"sum by (executor) (increase(ackwright_executor_failed_tasks_total{{{_DRIVER}}}[5m]))",
                    "{{executor}}",
                )
            ],
            *(12, 44, "short"),
        ),
    ]
    dashboard = {
        "uid": "ackwright-pipeline",
        "title": "Ackwright: one pipeline",
        "tags": ["ackwright", "kafka", "spark"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus", "current": {}},
                _variable("namespace", "Namespace", "label_values(ackwright_pipeline_condition, namespace)"),
                _variable(
                    "pipeline",
                    "Pipeline",
                    'label_values(ackwright_pipeline_condition{namespace="$namespace"}, name)',
                ),
            ]
        },
        "panels": [{"id": i, **panel} for i, panel in enumerate(panels, 1)],
    }
    return json.dumps(dashboard, indent=1) + "\n"


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        **{"name": name, "label": label, "type": "query", "datasource": _SOURCE},
        **{"query": {"query": query, "refId": name}, "refresh": 2, "sort": 1},
    }


def _target(expression: str, legend: str, letter: str, **more: Any) -> dict[str, Any]:
    return {"datasource": _SOURCE, "expr": expression, "legendFormat": legend, "refId": letter, **more}


def _stat(title: str, expression: str, x: int, defaults: dict[str, Any]) -> Panel:
    return {
        **{"title": title, "type": "stat", "datasource": _SOURCE, "gridPos": {"x": x, "y": 0, "w": 6, "h": 4}},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [_target(expression, "", "A", instant=True)],
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}},
    }


def _number(title: str, expression: str, x: int, unit: str) -> Panel:
    return _stat(title, expression, x, {"unit": unit, "color": {"mode": "fixed", "fixedColor": "blue"}})


def _truth(title: str, condition: str, x: int) -> Panel:
    """Yes or no, by whether the condition is True."""
    expression = (
        f'count(ackwright_pipeline_condition{{{_OPERATOR},condition="{condition}",status="True"}}) or vector(0)'
    )
    steps = [{"color": "red", "value": None}, {"color": "green", "value": 1}]
    mappings = [{"type": "value", "options": {"0": {"text": "no"}, "1": {"text": "yes"}}}]
    thresholds = {"mode": "absolute", "steps": steps}
    return _stat(
        title, expression, x, {"color": {"mode": "thresholds"}, "thresholds": thresholds, "mappings": mappings}
    )


def _series(title: str, queries: list[tuple[str, str]], x: int, y: int, unit: str) -> Panel:
    return {
        **{"title": title, "type": "timeseries", "datasource": _SOURCE, "gridPos": {"x": x, "y": y, "w": 12, "h": 8}},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [_target(expression, legend, chr(65 + i)) for i, (expression, legend) in enumerate(queries)],
    }
