"""A pipeline in a world of its own: Kubernetes, brokers and a driver in memory, an operator that looks, and a clock that is moved."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from ackwright.clients.connections import Connections
from ackwright.neighbours import Neighbours
from ackwright.planning.observed import Progress
from ackwright.reconcile import Reconciler
from ackwright.settings import OperatorSettings
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
RUNNING = Progress(
    "running", driver=1, batch=7, lag=0, records_per_second=1.0, abandoned=0, malformed=0, expired=0, positions=1
)


class World:
    """A pipeline p, the operator that looks at it, and a driver that says what is in told once its pod is there. kafka: a connection to
    real brokers may stand for those in memory."""

    def __init__(self, spec: dict[str, Any] | None = None, kafka: Any = None) -> None:
        self.kubernetes, self.kafka = FakeKubernetes(), kafka or FakeKafka()
        self.connections = FakeConnections(self.kafka)
        if kafka is None:
            self.kafka.recorder = self.kubernetes
        self.seconds, self.between_looks = 0.0, 5.0
        self.told: Progress | None = RUNNING
        self.settings, self.neighbours = OperatorSettings(), Neighbours()
        self.start_operator()
        self.kubernetes.declare("p", spec or SPEC)

    def start_operator(self) -> None:
        self.operator = Reconciler(
            self.kubernetes,
            cast(Connections, self.connections),
            self.settings,
            now=self.now,
            clock=lambda: self.seconds,
            ask=lambda _: self.told,
            neighbours=self.neighbours,
        )

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def copy(self) -> World:
        found = copy.deepcopy(self)
        found.start_operator()
        return found

    def look(self) -> float | None:
        """One look; then the controllers act, and time goes by."""
        try:
            return self.operator.reconcile(copy.deepcopy(self.resource), self.kubernetes.children())
        finally:
            self.moved = self.kubernetes.run()
            self.seconds += self.between_looks

    def settle(self) -> World:
        """Looks until nothing is written any more; first after so long that nothing is left out."""
        self.seconds += OperatorSettings().resync
        for _ in range(20):
            writes = len(self.kubernetes.writes)
            self.look()
            if len(self.kubernetes.writes) == writes and not self.moved:
                return self
        raise AssertionError(f"it never settles: {self.kubernetes.writes[-9:]}")

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
        """What counts in the end: neither times nor numbers that the API server gives."""
        found = {}
        for (kind, name), o in self.kubernetes.stored.items():
            meta = {k: o["metadata"].get(k) for k in ("labels", "annotations", "finalizers")}
            found[kind, name] = {**{k: v for k, v in o.items() if k not in ("metadata", "status")}, **meta}
        status = self.resource["status"]
        said = {c["type"]: (c["status"], c["reason"], c["message"]) for c in status["conditions"]}
        rest = {k: status.get(k) for k in ("accepted", "intent", "observedGeneration", "topics", "group", "guarantee")}
        return {**found, "said": said, "rest": rest, "topics": sorted(self.kafka.existing)}

    def statuses_written(self) -> int:
        return sum(w.startswith("status ") for w in self.kubernetes.writes)
