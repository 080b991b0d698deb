"""What was seen of a pipeline in Kubernetes, as frozen values that decisions are made of. Pure: reading is for observe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Object = Mapping[str, Any]
Key = tuple[str, str]  # kind, name


@dataclass(frozen=True)
class DriverPod:
    """A driver's pod. deleting: it was told to end, and should be gone by gone_by; node_lost: because its node does not answer.

    waiting: why its container is not running (CrashLoopBackOff, ImagePullBackOff …); exit_code, error, ended_at: how it last ended; error
    is the sentence that the job ended with. config: the ConfigMap that it was made for; revision: of the StatefulSet. address: host:port
    of its progress. unschedulable: why it finds no node.
    """

    name: str
    uid: str
    phase: str = "Pending"
    ready: bool = False
    deleting: bool = False
    gone_by: str | None = None
    node_lost: bool = False
    node: str | None = None
    restarts: int = 0
    waiting: str | None = None
    waiting_message: str = ""
    unschedulable: str | None = None
    exit_code: int | None = None
    error: str | None = None
    ended_at: str | None = None
    config: str | None = None
    revision: str | None = None
    address: str | None = None


@dataclass(frozen=True)
class EndedExecutor:
    """An executor's pod that has ended and that no living driver will remove."""

    name: str
    uid: str


@dataclass(frozen=True)
class Workload:
    """children: what the pipeline owns, by kind and name, pods apart; in_the_way: what an earlier pipeline of that name left, on its way
    out; ended: executors to be swept."""

    children: Mapping[Key, Object] = field(default_factory=dict)
    in_the_way: frozenset[Key] = frozenset()
    drivers: tuple[DriverPod, ...] = ()
    ended: tuple[EndedExecutor, ...] = ()

    @property
    def driver(self) -> DriverPod | None:
        """The one that matters: the one that is not on its way out, if there are several."""
        return min(self.drivers, key=lambda d: (d.deleting, d.name), default=None)

    @property
    def rolling(self) -> bool:
        """Whether a driver runs that is about to be replaced: the StatefulSet's controller has not seen yet what was applied last, or the
        driver is of an older revision. (https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#rolling-updates)"""
        generation = self._stateful_set.get("metadata", {}).get("generation", 0)
        unseen = self._stateful_set.get("status", {}).get("observedGeneration", generation) < generation
        return any(unseen or self.has_newer(d) for d in self.drivers)

    def has_newer(self, driver: DriverPod) -> bool:
        """Whether the driver is of an older revision than the StatefulSet's newest; not, as long as either is unknown."""
        newest = self._stateful_set.get("status", {}).get("updateRevision")
        return newest is not None and driver.revision not in (None, newest)

    @property
    def _stateful_set(self) -> Object:
        return next((o for (kind, _), o in self.children.items() if kind == "StatefulSet"), {})

    @property
    def complete(self) -> bool:
        """A bounded run that has ended well."""
        said = [
            c
            for (kind, _), o in self.children.items()
            if kind == "Job"
            for c in o.get("status", {}).get("conditions", ())
        ]
        return any(c.get("type") == "Complete" and c.get("status") == "True" for c in said)


@dataclass(frozen=True)
class Progress:
    """What the driver told of itself. positions: a digest of them, which changes when they move."""

    state: Literal["starting", "running", "restarting", "failed", "drained", "complete"] | str
    driver: int
    batch: int
    lag: int
    records_per_second: float
    abandoned: int
    malformed: int
    expired: int
    positions: int
    last_error: str | None = None
