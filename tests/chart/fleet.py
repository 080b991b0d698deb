"""The scrapes of a made-up fleet for the pictures of the dashboards: metrics are the real ones, their values invented.

Ten pipelines in three namespaces. `payments/fraud-scores` falls behind. The executors of `shop/clicks` run out of
memory again and again, and its query restarts each time. A broker is lost for a while.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import pi, sin
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from ackwright.conditions.transitions import ORDER
from ackwright.metrics import Metrics
from ackwright.reasons import ConditionReason
from ackwright_stream.memory_use import ExecutorUse, MemoryUse
from ackwright_stream.progress import Progress, ProgressMetrics
from ackwright_stream.reasons import Reason
from ackwright_stream.reports import ProgressReport, StartPart
from chart.prometheus import Scrape, operator_labels, samples
from minimal_job import minimal_report

MINUTES = 191
RESTARTING, LAGGING = ("shop", "clicks"), ("payments", "fraud-scores")
_SLOWER_FROM = 95  # minute from which LAGGING delivers less than arrives
_LOST_BROKER, _SECOND_BROKER = range(112, 125), range(115, 121)  # minutes without one broker, and without two
_MOVING = range(40, 72)  # minutes in which a topic moves to other brokers
_WITHOUT_IMAGE = range(20, 34)  # minutes in which a pipeline cannot start
_DEATHS = (34, 76, 112, 147, 189)  # minutes in which an executor of RESTARTING dies
_REPAIR_MINUTES = 2  # from a death to the next batch
_HEAP = 2**30  # bytes, of each JVM of RESTARTING
_PARTITIONS = {"clicks": 4, "taps": 2}  # of the topics of RESTARTING
_START_SECONDS = dict(zip(StartPart, (0.9, 1.3, 3.9, 1.6, 0.8, 2.4, 2.0, 4.4), strict=True))
_REASONS = dict(zip(ORDER, ("Delivering", "Met", "AsPlanned", "", "Running", "Settled", "NotStalled", ""), strict=True))


@dataclass
class _Pipeline:
    namespace: str
    name: str
    topics: Sequence[str]
    rate: float  # records per second that arrive on average
    capacity: float  # records per second that it delivers at most
    trigger_s: float
    lag: float = 0  # offsets that it has not reached
    in_flight: float = 0  # offsets of its current batch
    batch: float = 0  # of its query
    delivered: float = 0  # records, in the last minute
    replicas: dict[str, tuple[int, int]] = field(default_factory=dict)  # in sync and moving, by topic
    failures: dict[str, tuple[str, str]] = field(default_factory=dict)  # status and reason, by condition

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def status(self) -> Mapping[str, Any]:
        """The resource as far as the metrics read it."""
        healthy = {c: (str(c not in ("Reconciling", "Stalled")), reason) for c, reason in _REASONS.items() if reason}
        conditions = [{"type": c, "status": s, "reason": r} for c, (s, r) in (healthy | self.failures).items()]
        topics = [
            {"name": topic, "replicationFactor": 3, "minInsyncReplicas": 2, "inSyncReplicas": in_sync, "moving": moving}
            for topic, (in_sync, moving) in self.replicas.items()
        ]
        delivery = {"lag": int(self.lag + self.in_flight), "batch": int(self.batch)}
        return {"status": {"conditions": conditions, "topics": topics, "delivery": delivery}}

    def advance(self, minute: int, random: Random) -> None:
        """Adds a minute."""
        phase = sum(self.name.encode())
        arrived = 60 * self.rate * (1 + 0.15 * sin(2 * pi * minute / 120 + phase)) * random.uniform(0.97, 1.03)
        slower = self.key == LAGGING and minute >= _SLOWER_FROM
        runs = "Ready" not in self.failures
        self.delivered = min(self.lag + arrived, 60 * self.capacity * (0.62 if slower else 1)) if runs else 0
        self.lag += arrived - self.delivered
        self.in_flight = self.rate * self.trigger_s * random.uniform(0.3, 1)
        self.batch += 60 / self.trigger_s * (0.4 if slower else 1) * random.uniform(0.97, 1.0) if runs else 0

    def fail(self, minute: int) -> None:
        """Sets its conditions and the replicas of its topics in a minute."""
        self.failures = {}
        restarting = self.key == RESTARTING and any(0 <= minute - d < _REPAIR_MINUTES for d in _DEATHS)
        if restarting:
            self.batch = 0
            self.failures = dict.fromkeys(("Ready", "JobRunning"), ("False", Reason.BATCH_FAILED.value))
        if self.name == "refunds" and minute in _WITHOUT_IMAGE:
            self.failures = dict.fromkeys(("Ready", "JobRunning"), ("False", ConditionReason.IMAGE_UNAVAILABLE.value))
            self.failures["Stalled"] = ("True", ConditionReason.IMAGE_UNAVAILABLE.value)
        for topic in self.topics:
            in_sync = 3 - (minute in _LOST_BROKER and sum(topic.encode()) % 2)
            if topic == "settlements" and minute in _SECOND_BROKER:
                in_sync = 1
            moving = (_MOVING.stop - minute) // 8 + 1 if topic == "parcels" and minute in _MOVING else 0
            self.replicas[topic] = (in_sync, moving)
            if in_sync < 2:
                self.failures = dict.fromkeys(
                    ("Ready", "GuaranteeMet"), ("False", ConditionReason.NOT_ENOUGH_REPLICAS.value)
                )


def _fleet() -> list[_Pipeline]:
    # With more than the 20 topics that a panel shows, Prometheus would choose among equal ones at random.
    rows = (
        ("logistics", "customs", ("declarations",), 120, 600, 30),
        ("logistics", "parcels", ("parcels", "parcels-by-depot"), 900, 3000, 10),
        ("logistics", "routes", ("positions", "routes"), 350, 1500, 15),
        ("payments", "authorizations", ("authorizations", "ledger"), 1800, 4000, 5),
        (*LAGGING, ("payments", "fraud-scores"), 1500, 2100, 10),
        ("payments", "refunds", ("refunds", "refunds-checked"), 60, 500, 20),
        ("payments", "settlements", ("batches", "settlements"), 240, 900, 20),
        ("shop", "carts", ("cart-events", "carts"), 1300, 3000, 8),
        (*RESTARTING, (*_PARTITIONS, "sessions"), 4200, 6500, 12),
        ("shop", "orders", ("orders", "orders-enriched"), 700, 2500, 6),
    )
    return [_Pipeline(*row) for row in rows]


@dataclass(frozen=True)
class _Executor:
    name: str
    start: int  # minute
    end: int

    def fill(self, minute: int) -> float:
        """The used part of its heap."""
        return min(1.0, 0.3 + 0.7 * (minute - self.start) / (self.end - self.start))


def _executors() -> list[_Executor]:
    """Two at a time; the older one dies at each of _DEATHS, and the next one starts when it has been replaced."""
    starts = (-40, 0, *(death + _REPAIR_MINUTES for death in _DEATHS))
    ends = (*_DEATHS, MINUTES + 35, MINUTES + 70)
    return [_Executor(str(n), *life) for n, life in enumerate(zip(starts, ends, strict=True), 1)]


class _Driver:
    """The driver of RESTARTING: what Progress exports of it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._counts: Counter[str] = Counter()
        self._gc_seconds: dict[str, float] = defaultdict(float)
        self._positions = {t: {str(p): 1_000_000 for p in range(n)} for t, n in _PARTITIONS.items()}
        registry = CollectorRegistry()
        stub = SimpleNamespace(snapshot=lambda: self.report, memory=None)
        registry.register(ProgressMetrics(cast(Progress, stub)))
        self.report: ProgressReport = minimal_report()
        self._stub, self._registry = stub, registry

    def scrape(self, minute: int, pipeline: _Pipeline) -> Scrape:
        """Its metrics after this minute of its pipeline."""
        self._counts["records"] += int(pipeline.delivered)
        if pipeline.delivered:
            self._counts["batches"] += int(pipeline.batch) - int(self._counts["last_batch"])
            self._counts["dead_letters"] += self._random.randrange(9)
        self._counts["last_batch"] = int(pipeline.batch)
        if minute in _DEATHS:
            self._counts["restarts"] += 1
            self._counts["skipped_lanes"] += self._random.randrange(1, 6)
        for topic, share in (("clicks", 0.8), ("taps", 0.2)):
            for partition in self._positions[topic]:
                self._positions[topic][partition] += int(pipeline.delivered * share / _PARTITIONS[topic])
        counters = ("records", "batches", "restarts", "dead_letters", "skipped_lanes")
        catches_up = pipeline.delivered / 60 / pipeline.rate
        self.report = minimal_report(
            pipeline=f"{pipeline.namespace}/{pipeline.name}",
            driver=4,
            lag=int(pipeline.lag + pipeline.in_flight),
            batch_id=int(pipeline.batch),
            batch_seconds=round(6 * max(catches_up, 0.9) ** 2 * self._random.uniform(0.9, 1.1), 2),
            records_per_second=round(pipeline.delivered / 60, 1),
            positions=self._positions,
            start_seconds=_START_SECONDS,
            **{name: self._counts[name] for name in counters},
        )
        self._stub.memory = self._memory(minute)
        labels = {"namespace": pipeline.namespace, "container": "driver", "pod": f"{pipeline.name}-0"}
        return samples(self._registry, labels)

    def _memory(self, minute: int) -> MemoryUse:
        executors = [e for e in _executors() if e.start <= minute < e.end]
        for e in executors:
            self._gc_seconds[e.name] += 60 * (0.02 + 2 * max(0, e.fill(minute) - 0.8))
        self._gc_seconds["driver"] += 60 * self._random.uniform(0.005, 0.015)
        of_driver = _HEAP * (0.3 + 0.03 * (minute * 7 % 11))
        uses = [("driver", 0.65, 0), *((e.name, e.fill(minute), 4 * (minute == e.end - 1)) for e in executors)]
        return MemoryUse(
            int(of_driver),
            _HEAP,
            tuple(
                ExecutorUse(name, int(_HEAP * fill), 2**27, self._gc_seconds[name], failed)
                for name, fill, failed in uses
            ),
        )


@dataclass
class _Queue:
    """The worklist of an operator with little to do, except while brokers answer late."""

    length: int = 0

    def __len__(self) -> int:
        return self.length

    def age(self, *, changed: bool) -> float:
        return 0.4 * self.length


def scrapes() -> list[Scrape]:
    """One scrape per minute of the operator and of the driver of RESTARTING; the same ones at each call."""
    random = Random("fleet")
    fleet, queue, driver = _fleet(), _Queue(), _Driver(random)
    metrics = Metrics(lambda: {p.key: p.status() for p in fleet}, queue)
    result: list[Scrape] = []
    for minute in range(MINUTES):
        late = minute in _LOST_BROKER
        for pipeline in fleet:
            pipeline.fail(minute)
            pipeline.advance(minute, random)
            for _ in range(2):
                metrics.duration.observe(random.lognormvariate(-0.3 if late else -2.3, 0.5))
        queue.length = random.randrange(3, 7) if late else random.randrange(2)
        if late and minute % 3 == 0:
            metrics.errors.labels(Reason.BROKERS_UNREACHABLE.value).inc(random.randrange(1, 4))
        restarting = next(p for p in fleet if p.key == RESTARTING)
        of_operator = samples(metrics.registry, operator_labels("ackwright-operator-1"))
        result.append({**of_operator, **driver.scrape(minute, restarting)})
    return result
