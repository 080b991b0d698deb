"""The operator's HTTP server: /metrics, /healthz (it receives events and reconciles), /readyz (it has started to)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ackwright.conditions.staleness import as_known
from ackwright.conditions.transitions import ORDER

Resources = Callable[[], Mapping[tuple[str, str], Mapping[str, Any]]]  # every pipeline, by namespace and name


class Queue(Protocol):
    """What the metrics show of the worklist."""

    def __len__(self) -> int: ...

    def age(self, *, changed: bool) -> float:
        """For how many seconds the pipeline that has waited longest has been due."""
        ...


_TOPIC = ["namespace", "pipeline", "topic"]
_TOPIC_GAUGES = (
    ("replicationFactor", "replicas", "Replicas of the partition with the fewest"),
    ("inSyncReplicas", "in_sync_replicas", "Replicas in sync of the partition with the fewest"),
    (
        "minInsyncReplicas",
        "min_insync_replicas",
        "min.insync.replicas in force: with fewer replicas in sync nothing is written",
    ),
    ("moving", "moving_partitions", "Partitions whose replicas are being moved"),
)


class Metrics:
    """All metrics of the operator."""

    def __init__(
        self,
        pipelines: Resources,
        worklist: Queue,
        lost: Callable[[], Mapping[str, bool]] = lambda: {},
        leads: Callable[[], bool] = lambda: True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        shards: int = 1,
    ) -> None:
        """lost: returns whether each watched namespace is lost. leads: whether this replica leads. shards: how many
        operators divide the namespaces.
        """
        self.registry = CollectorRegistry()
        self.duration = Histogram(
            "ackwright_reconcile_seconds",
            "Duration of one reconcile of a pipeline",
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=self.registry,
        )
        self.errors = Counter(
            "ackwright_reconcile_errors", "Reconciles that failed and are repeated", ["reason"], registry=self.registry
        )
        self.conflicts = Counter(
            "ackwright_reconcile_conflicts",
            "Reconciles that are repeated because something else changed an object meanwhile",
            registry=self.registry,
        )
        self.kafka_process_ends = Counter(
            "ackwright_kafka_process_ends",
            "Processes of Kafka's clients that ended because of an answer of brokers, and were replaced",
            registry=self.registry,
        )
        Gauge(
            "ackwright_operator_shards", "Shards that divide the namespaces, each with a leader", registry=self.registry
        ).set(shards)
        self.registry.register(_PipelineMetrics(pipelines, worklist, lost, leads, now))


class _PipelineMetrics(Collector):
    """Metrics out of the statuses of all pipelines."""

    def __init__(
        self,
        pipelines: Resources,
        worklist: Queue,
        lost: Callable[[], Mapping[str, bool]],
        leads: Callable[[], bool],
        now: Callable[[], datetime],
    ) -> None:
        self._pipelines, self._worklist, self._lost = pipelines, worklist, lost
        self._leads, self._now = leads, now

    def collect(self) -> Iterator[Metric]:
        leader = GaugeMetricFamily(
            "ackwright_operator_leader", "1 for the replica of the operator that leads, 0 for one that stands by"
        )
        leader.add_metric([], self._leads())
        yield leader
        worklist = GaugeMetricFamily("ackwright_worklist", "Pipelines that are due for a reconcile")
        worklist.add_metric([], len(self._worklist))
        yield worklist
        age = GaugeMetricFamily(
            "ackwright_worklist_age_seconds",
            "How long the pipeline that has waited longest has been due: after a change, or for a routine reconcile",
            labels=["due_for"],
        )
        for due_for, changed in (("change", True), ("routine", False)):
            age.add_metric([due_for], self._worklist.age(changed=changed))
        yield age
        lost = GaugeMetricFamily(
            "ackwright_namespace_lost",
            "1 for a watched namespace that is deleted, or in which the operator lacks permissions",
            labels=["namespace"],
        )
        for namespace, is_lost in sorted(self._lost().items()):
            lost.add_metric([namespace], is_lost)
        yield lost
        by_condition = GaugeMetricFamily(
            "ackwright_pipelines", "Pipelines by condition", labels=["condition", "status"]
        )
        counts = {(kind, truth): 0 for kind in ORDER for truth in ("True", "False", "Unknown")}
        lag = GaugeMetricFamily(
            "ackwright_pipeline_lag",
            "Offsets between positions and ends, as last reported by the driver",
            labels=["namespace", "name"],
        )
        batch = GaugeMetricFamily(
            "ackwright_pipeline_batch",
            "Number of the last batch, as last reported by the driver",
            labels=["namespace", "name"],
        )
        condition = GaugeMetricFamily(
            "ackwright_pipeline_condition",
            "1 for the present status and reason of each condition of a pipeline",
            labels=["namespace", "name", "condition", "status", "reason"],
        )
        of_topics = {
            field: GaugeMetricFamily(f"ackwright_topic_{name}", text, labels=_TOPIC)
            for field, name, text in _TOPIC_GAUGES
        }
        now = self._now()
        for (namespace, name), resource in sorted(self._pipelines().items()):
            status = as_known(resource, now).get("status") or {}
            for c in status.get("conditions", ()):
                if (c["type"], c["status"]) in counts:
                    counts[c["type"], c["status"]] += 1
                condition.add_metric([namespace, name, c["type"], c["status"], c["reason"]], 1)
            for topic in _topics(status):
                for field, family in of_topics.items():
                    family.add_metric([namespace, name, topic["name"]], topic.get(field, 0))
            delivery = status.get("delivery") or {}
            for family, field in ((lag, "lag"), (batch, "batch")):
                if field in delivery:
                    family.add_metric([namespace, name], delivery[field])
        for labels, n in counts.items():
            by_condition.add_metric(labels, n)
        yield from (by_condition, lag, batch, condition, *of_topics.values())


def _topics(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The topics; none of a status that an earlier release wrote in another form."""
    topics = status.get("topics")
    return topics if isinstance(topics, list) else []


def serve(
    metrics: Metrics, port: int, *, healthy: Callable[[], bool], ready: Callable[[], bool]
) -> ThreadingHTTPServer:
    """Serves in the background, on every interface, because the kubelet probes from outside the pod."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, generate_latest(metrics.registry), "text/plain; version=0.0.4; charset=utf-8")
            elif self.path in ("/healthz", "/readyz"):
                ok = healthy() if self.path == "/healthz" else ready()
                self._answer(200 if ok else 503, b"ok\n" if ok else b"no\n", "text/plain")
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
