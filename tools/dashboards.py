"""The Grafana dashboards of all pipelines and of one, as JSON for the chart. `make chart` writes them.

Driver metrics have no namespace by themselves: a scrape by the chart's PodMonitor adds it.
"""

from __future__ import annotations

import json
from typing import Any

Panel = dict[str, Any]

_SOURCE = {"type": "prometheus", "uid": "${source}"}
_MANY = 'namespace=~"$namespace",name=~"$pipeline"'
_MANY_TOPICS = 'namespace=~"$namespace",pipeline=~"$pipeline"'
_LARGEST = 20  # series of a panel, because nobody can tell hundreds apart
_OPERATOR = 'namespace="$namespace",name="$pipeline"'
_DRIVER = 'namespace="$namespace",pipeline="$namespace/$pipeline"'  # a driver names its pipeline with its namespace
_TOPIC = 'namespace="$namespace",pipeline="$pipeline"'  # of the operator's metrics of topics
_COUNTERS = (
    "abandoned_records",
    "expired_records",
    "malformed_records",
    "dead_letters",
    "late_rows",
    "skipped_lanes",
    "restarts",
)


def fleet() -> str:
    """The text of the file for all pipelines, or some of them."""
    name, topic = "{{namespace}}/{{name}}", "{{namespace}}/{{pipeline}} {{topic}}"
    panels = [
        _stat("Ready", _count("Ready", "True"), 0, {"color": {"mode": "fixed", "fixedColor": "blue"}}),
        _alarm("Guarantee not met", _count("GuaranteeMet", "False"), 6),
        _alarm("Stalled", _count("Stalled", "True"), 12),
        _alarm(
            "Topics below min.insync.replicas",
            f"count(ackwright_topic_in_sync_replicas{{{_MANY_TOPICS}}} < "
            f"ackwright_topic_min_insync_replicas{{{_MANY_TOPICS}}}) or vector(0)",
            18,
        ),
        _unmet(),
        _series(
            "Lag",
            [(f"topk({_LARGEST}, ackwright_pipeline_lag{{{_MANY}}})", name)],
            *(0, 11, "short"),
            about=f"Offsets between positions and end offsets, from the driver's last report; the {_LARGEST} largest",
        ),
        _series(
            "Batches per minute",
            [(f"bottomk({_LARGEST}, clamp_min(deriv(ackwright_pipeline_batch{{{_MANY}}}[5m]), 0) * 60)", name)],
            *(12, 11, "short"),
            about=f"Derived from the number of the last batch, which restarts with each query; the {_LARGEST} smallest",
        ),
        _series(
            "In-sync replicas above min.insync.replicas",
            [
                (
                    f"bottomk({_LARGEST}, ackwright_topic_in_sync_replicas{{{_MANY_TOPICS}}} - "
                    f"ackwright_topic_min_insync_replicas{{{_MANY_TOPICS}}})",
                    topic,
                )
            ],
            *(0, 19, "short"),
            about="Of the partition with the fewest. Below 0: brokers refuse writes. At 0: the loss of one more "
            f"replica stops writes. The {_LARGEST} smallest",
        ),
        _series(
            "Replicas out of sync and moving partitions",
            [
                (
                    f"ackwright_topic_replicas{{{_MANY_TOPICS}}} - "
                    f"ackwright_topic_in_sync_replicas{{{_MANY_TOPICS}}} > 0",
                    f"{topic} out of sync",
                ),
                (f"ackwright_topic_moving_partitions{{{_MANY_TOPICS}}} > 0", f"{topic} moving"),
            ],
            *(12, 19, "short"),
        ),
        _series(
            "Pipelines by condition",
            [('ackwright_pipelines{status="True"}', "{{condition}}")],
            *(0, 27, "short"),
            width=8,
            about="In all namespaces that the operator watches",
        ),
        _series(
            "Duration of a reconcile",
            [
                (f"histogram_quantile({quantile}, sum by (le) (rate(ackwright_reconcile_seconds_bucket[5m])))", legend)
                for quantile, legend in ((0.5, "median"), (0.99, "p99"))
            ],
            *(8, 27, "s"),
            width=8,
        ),
        _series(
            "Due pipelines and reconcile errors",
            [
                ("ackwright_worklist", "pipelines due"),
                ("sum by (reason) (rate(ackwright_reconcile_errors_total[5m])) * 60", "{{reason}} per minute"),
            ],
            *(16, 27, "short"),
            width=8,
        ),
    ]
    several = {"multi": True, "includeAll": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}
    pipelines = 'label_values(ackwright_pipeline_condition{namespace=~"$namespace"}, name)'
    variables = [
        _variable("namespace", "Namespace", "label_values(ackwright_pipeline_condition, namespace)") | several,
        _variable("pipeline", "Pipeline", pipelines) | several,
    ]
    return _dashboard("ackwright", "Ackwright", variables, panels)


def pipeline() -> str:
    """The text of the file for one pipeline."""
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
    variables = [
        _variable("namespace", "Namespace", "label_values(ackwright_pipeline_condition, namespace)"),
        _variable("pipeline", "Pipeline", 'label_values(ackwright_pipeline_condition{namespace="$namespace"}, name)'),
    ]
    return _dashboard("ackwright-pipeline", "Ackwright: one pipeline", variables, panels)


def _dashboard(uid: str, title: str, variables: list[dict[str, Any]], panels: list[Panel]) -> str:
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus", "current": {}}
    dashboard = {
        "uid": uid,
        "title": title,
        "tags": ["ackwright", "kafka", "spark"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *variables]},
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


def _count(condition: str, status: str) -> str:
    """How many of the pipelines have the condition with this status."""
    return f'count(ackwright_pipeline_condition{{{_MANY},condition="{condition}",status="{status}"}}) or vector(0)'


def _alarm(title: str, expression: str, x: int) -> Panel:
    """A number that is red above 0."""
    steps = [{"color": "green", "value": None}, {"color": "red", "value": 1}]
    return _stat(
        title, expression, x, {"color": {"mode": "thresholds"}, "thresholds": {"mode": "absolute", "steps": steps}}
    )


def _unmet() -> Panel:
    """The table of conditions that are not met."""
    expression = (
        f"ackwright_pipeline_condition{{{_MANY},"
        'condition=~"Ready|GuaranteeMet|TopicsReady|JobRunning",status!="True"} or '
        f'ackwright_pipeline_condition{{{_MANY},condition="Stalled",status="True"}}'
    )
    hidden = ("Time", "Value", "__name__", "container", "endpoint", "instance", "job", "pod", "service")
    columns = ("namespace", "name", "condition", "status", "reason")
    return {
        **{"title": "Conditions that are not met", "type": "table", "datasource": _SOURCE},
        "gridPos": {"x": 0, "y": 4, "w": 24, "h": 7},
        "fieldConfig": {"defaults": {}, "overrides": []},
        "targets": [_target(expression, "", "A", instant=True, format="table")],
        "transformations": [
            {
                "id": "organize",
                "options": {
                    "excludeByName": dict.fromkeys(hidden, True),
                    "indexByName": {column: place for place, column in enumerate(columns)},
                },
            }
        ],
    }


def _series(
    title: str, queries: list[tuple[str, str]], x: int, y: int, unit: str, *, width: int = 12, about: str = ""
) -> Panel:
    return {
        **{"title": title, "type": "timeseries", "datasource": _SOURCE},
        **({"description": about} if about else {}),
        "gridPos": {"x": x, "y": y, "w": width, "h": 8},
        "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
        "targets": [_target(expression, legend, chr(65 + i)) for i, (expression, legend) in enumerate(queries)],
    }
