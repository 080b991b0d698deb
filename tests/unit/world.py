"""A pipeline with everything around it in memory: Kubernetes, brokers, a driver, an operator, and a clock that tests
move.
"""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ackwright.api.status import format_time
from ackwright.clients.connections import Connections
from ackwright.observe.workload import drivers, progress_addresses
from ackwright.pipeline_index import PipelineIndex
from ackwright.reconcile import Reconciler
from ackwright.settings import OperatorSettings
from ackwright_stream.reports import Ending, ProgressReport, State
from unit.fake_kafka import FakeConnections, FakeKafka
from unit.fake_kubernetes import FakeKubernetes, Object

SPEC: dict[str, Any] = {
    "guarantee": "exactly-once",
    "kafka": {"bootstrapServers": "k:9092"},
    "source": {"topics": ["in"]},
    "transform": {"sql": "SELECT * FROM source"},
    "sink": {"kafka": {"topic": "out"}},
    "topics": [{"name": "in", "partitions": 2}, {"name": "out", "partitions": 2}],
}
STATEFUL: dict[str, Any] = SPEC | {
    "source": {
        "topics": ["in"],
        "format": "json",
        "schema": "origin STRING, at TIMESTAMP",
        "startingOffsets": "earliest",
        "eventTime": {"column": "at", "watermark": "30s"},
    },
    "transform": {"sql": "SELECT origin AS key, CAST(count(*) AS STRING) AS value FROM source GROUP BY origin"},
    "state": {"partitions": 2, "outputMode": "update"},
    "checkpoint": {"volume": {"size": "1Gi"}},
}
RUNNING = ProgressReport(
    pipeline="ops/p",
    guarantee="exactly-once",
    state=State.RUNNING,
    driver=1,
    batch_id=7,
    batch_seconds=0.5,
    last_batch_at=None,
    positions={"in": {"0": 5, "1": 5}},
    lag=0,
    records=10,
    batches=7,
    restarts=0,
    abandoned_records=0,
    expired_records=0,
    malformed_records=0,
    dead_letters=0,
    skipped_lanes=0,
    records_per_second=1.0,
    ends={"in": {"0": 5, "1": 5}},
)


class World:
    """A pipeline p, its operator, and a driver that reports `progress` while its pod runs."""

    def __init__(self, spec: dict[str, Any] | None = None, kafka: Any = None, sink: FakeKafka | None = None) -> None:
        """kafka: a connection to real brokers instead of those in memory. sink: of a sink with its own cluster."""
        self.kubernetes, self.kafka = FakeKubernetes(), kafka or FakeKafka()
        self.connections = FakeConnections(self.kafka, sink)
        if kafka is None:
            self.kafka.recorder = self.kubernetes
        self.seconds, self.seconds_between = 0.0, 5.0
        self.progress: ProgressReport | None = RUNNING
        self.progresses: dict[str, ProgressReport] = {}  # of single pods, by their addresses
        self.settings, self.index = OperatorSettings(), PipelineIndex()
        self.pipelines_listed = True
        self.start_operator()
        self.kubernetes.declare("p", spec or SPEC)

    def start_operator(self) -> None:
        self.operator = Reconciler(
            self.kubernetes,
            cast(Connections, self.connections),
            self.settings,
            now=self.now,
            clock=lambda: self.seconds,
            index=self.index,
            pipelines_listed=lambda: self.pipelines_listed,
        )

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def copy(self) -> World:
        """An independent copy, with a new operator."""
        world = copy.deepcopy(self, {id(self.operator): None})  # its locks cannot be copied
        world.start_operator()
        return world

    def reconcile(self) -> float | None:
        """One reconcile; then the controllers act, and time passes."""
        try:
            return self.reconcile_alone()
        finally:
            self.moved = self.kubernetes.run()
            self.seconds += self.seconds_between

    def reconcile_alone(self) -> float | None:
        """One reconcile, after which no controller acts."""
        self.kubernetes.now = format_time(self.now())
        children = self.kubernetes.children()
        reports = {
            address: report
            for address in progress_addresses(drivers(children))
            if (report := self.progresses.get(address.partition(":")[0], self.progress))
        }
        cached = copy.deepcopy((self.resource, children))
        before = json.dumps(cached)
        try:
            return self.operator.reconcile(*cached, reports)
        finally:
            assert json.dumps(cached) == before, "the cache shares equal parts of objects: nobody may change them"

    def settle(self) -> World:
        """Reconciles until nothing is written any more. Time passes first, so that each reconcile reads everything."""
        self.seconds += OperatorSettings().resync
        for _ in range(20):
            writes = len(self.kubernetes.writes)
            self.reconcile()
            if len(self.kubernetes.writes) == writes and not self.moved:
                return self
        raise AssertionError(f"the pipeline never settles: {self.kubernetes.writes[-9:]}")

    def end_driver(self, ending: Ending) -> World:
        """The driver's container ends like this, and waits for its next start; then one reconcile."""
        message = {"message": ending.to_json(), "finishedAt": "2026-11-21T12:00:00Z"}
        container = {
            "name": "driver",
            "restartCount": 1,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": ending.exit_code, **message}},
        }
        self.kubernetes.stored["Pod", "p-0"]["status"] |= {"containerStatuses": [container], "conditions": []}
        self.progress, self.kubernetes.ready = None, False
        self.reconcile()
        return self

    @property
    def resource(self) -> Object:
        return self.kubernetes.stored["DeliveryPipeline", "p"]

    def condition(self, kind: str) -> str:
        return next(
            (f"{c['status']}/{c['reason']}" for c in self.resource["status"]["conditions"] if c["type"] == kind), "none"
        )

    def conditions(self, *kinds: str) -> list[str]:
        return [self.condition(kind) for kind in kinds]

    def kinds(self) -> list[str]:
        return sorted(kind for kind, _ in self.kubernetes.stored)

    def end_state(self) -> dict[str, Any]:
        """Everything that has to be equal in the end: neither times nor numbers that the API server assigns."""
        state: dict[Any, Any] = {}
        for (kind, name), o in self.kubernetes.stored.items():
            meta = {k: o["metadata"].get(k) for k in ("labels", "annotations", "finalizers")}
            state[kind, name] = {**{k: v for k, v in o.items() if k not in ("metadata", "status")}, **meta}
        status = self.resource["status"]
        conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
        names = ("accepted", "edit", "intent", "observedGeneration", "topics", "group", "guarantee")
        rest = {k: {**v, "since": None} if isinstance(v := status.get(k), dict) else v for k in names}
        return {**state, "conditions": conditions, "rest": rest, "topics": sorted(self.kafka.existing)}

    def statuses_written(self) -> int:
        return sum(w.startswith("status ") for w in self.kubernetes.writes)
