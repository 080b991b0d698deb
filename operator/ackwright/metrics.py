"""The operator's metrics, and its answers to probes, over HTTP: /metrics, /healthz (it sees changes), /readyz (it has begun)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ackwright.conditions import ORDER

Resources = Callable[[], Mapping[tuple[str, str], Mapping[str, Any]]]  # every pipeline, by namespace and name

_TOPIC = ["namespace", "pipeline", "topic"]
_TOPIC_GAUGES = (
    ("replicationFactor", "replicas", "Replicas of the partition with the fewest"),
    ("inSyncReplicas", "in_sync_replicas", "Replicas in sync of the partition with the fewest"),
    ("minInsyncReplicas", "min_insync_replicas", "min.insync.replicas in force: with fewer in sync nothing is written"),
    ("moving", "moving_partitions", "Partitions whose replicas are being moved"),
)


class Metrics:
    """pipelines: the resources as last seen; waiting: how many are due."""

    def __init__(self, pipelines: Resources, waiting: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.duration = Histogram(
            "ackwright_reconcile_seconds",
            "Time that one look at a pipeline took",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.errors = Counter(
            "ackwright_reconcile_errors", "Looks that failed and are repeated", ["reason"], registry=self.registry
        )
        self.registry.register(_Pipelines(pipelines, waiting))


class _Pipelines(Collector):
    def __init__(self, pipelines: Resources, waiting: Callable[[], int]) -> None:
        self._pipelines, self._waiting = pipelines, waiting

    def collect(self) -> Iterator[Metric]:
        due = GaugeMetricFamily("ackwright_worklist", "Pipelines that are due for a look")
        due.add_metric([], self._waiting())
        yield due
        by_condition = GaugeMetricFamily(
            "ackwright_pipelines", "Pipelines by condition", labels=["condition", "status"]
        )
        counts = {(kind, truth): 0 for kind in ORDER for truth in ("True", "False", "Unknown")}
        lag = GaugeMetricFamily(
            "ackwright_pipeline_lag", "Offsets between positions and ends, as last told", labels=["namespace", "name"]
        )
        batch = GaugeMetricFamily(
            "ackwright_pipeline_batch", "Number of the last batch, as last told", labels=["namespace", "name"]
        )
        said = GaugeMetricFamily(
            "ackwright_pipeline_condition",
            "1 for what each condition of a pipeline says: its status, and the reason's name",
            labels=["namespace", "name", "condition", "status", "reason"],
        )
        of_topics = {
            field: GaugeMetricFamily(f"ackwright_topic_{name}", text, labels=_TOPIC)
            for field, name, text in _TOPIC_GAUGES
        }
        for (namespace, name), resource in sorted(self._pipelines().items()):
            status = resource.get("status") or {}
            for c in status.get("conditions", ()):
                if (c["type"], c["status"]) in counts:
                    counts[c["type"], c["status"]] += 1
                said.add_metric([namespace, name, c["type"], c["status"], c["reason"]], 1)
            for topic in _topics(status):
                for field, family in of_topics.items():
                    family.add_metric([namespace, name, topic["name"]], topic.get(field, 0))
            told = status.get("delivery") or {}
            for family, field in ((lag, "lag"), (batch, "batch")):
                if field in told:
                    family.add_metric([namespace, name], told[field])
        for labels, n in counts.items():
            by_condition.add_metric(labels, n)
        yield from (by_condition, lag, batch, said, *of_topics.values())


def _topics(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Nothing of a status that an earlier release wrote."""
    found = status.get("topics")
    return found if isinstance(found, list) else []


def serve(
    metrics: Metrics, port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]
) -> ThreadingHTTPServer:
    """Serves in the background, on every interface: the kubelet asks from outside of the pod."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(metrics.registry), "text/plain; version=0.0.4; charset=utf-8")
            elif self.path in ("/healthz", "/readyz"):
                good = healthy() if self.path == "/healthz" else ready()
                self._answer(200 if good else 503, b"ok\n" if good else b"no\n", "text/plain")
            else:
                self.send_error(404)

        def _answer(self, code: int, body: bytes, kind: str) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
