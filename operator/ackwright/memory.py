"""What the operator remembers about a pipeline between two reconciles, to save work and to measure durations. Pure.

Nothing depends on it: an operator that restarts observes everything again. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ackwright.api.quantities import duration_ms
from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import DeliveryStatus, ScheduleStatus
from ackwright.planning.clusters import ClusterRole
from ackwright_stream.reports import ProgressReport, State

_NEVER = float("-inf")
_MAX_DOUBLINGS = 6
# A driver that Kubernetes reports as ready is unreachable after so many requests without an answer, and so many
# seconds. One that is busy answers late now and then.
_UNANSWERED, _SILENT_S = 3, 120.0


class KafkaDigest(NamedTuple):
    """The state of a Kafka cluster in little memory: thousands of pipelines have one."""

    names: tuple[str, ...]  # of the topics that the pipeline depends on
    value: int  # as observe.kafka_state.digest() returns it


@dataclass(frozen=True)
class SteadyState:
    """A reconcile that had nothing to do and nothing new to report."""

    versions: frozenset[str]  # of everything in Kubernetes that it depended on
    until: float  # when Kafka is to be read again
    pipeline: DeliveryPipeline
    delivery: DeliveryStatus | None  # of the status, which is not kept as a whole: thousands of pipelines have one
    schedule: ScheduleStatus | None
    deadline: float  # when everything is to be read and decided again, even if Kafka has not changed
    job: Hashable = None  # what conditions depend on in the driver's report (job_state)
    kafka: Mapping[ClusterRole, KafkaDigest] = field(default_factory=dict)  # of each of the pipeline's clusters
    credentials: str | None = None  # a digest of the versions of the Secrets, as Connections.credentials() returns it
    conflicts: Mapping[str, str] = field(default_factory=dict)  # as RecordedTopics.conflicts


def job_state(progress: ProgressReport | None) -> Hashable:
    """What conditions depend on in a report, without the figures of the status; None: no driver answers."""
    if progress is None:
        return None
    delivered = progress.batches > 0, bool(progress.ends)
    failures = progress.failing, progress.last_error, progress.event_log_error, progress.executors_missing_s
    return progress.state, progress.driver, progress.restarts, delivered, failures


@dataclass
class ProgressTracker:
    """Whether a driver's positions move while it has lag."""

    positions: int | None = None  # a digest, which changes when a position moves
    since: float = 0.0  # when the positions were first reported, or when the driver last had no reason to move them
    futile_restarts: int = 0  # restarts of the driver after which its positions did not move

    def update(self, progress: ProgressReport | None, now: float) -> None:
        """Takes a report of the driver; None: it did not answer."""
        positions = None if progress is None else _digest(progress.positions)
        if positions is not None and positions != self.positions:
            self.futile_restarts = 0 if self.positions is not None else self.futile_restarts
            self.positions = positions
            self.since = now
        elif progress is None or progress.state is not State.RUNNING or progress.lag == 0:
            self.since = now

    def is_stuck(self, pipeline: DeliveryPipeline, patience: float, now: float) -> bool:
        """Whether the positions have not moved for too long. patience: seconds, before the first restart.

        Positions move at the end of a batch. The patience doubles with each futile restart, so that a batch that takes
        longer is not interrupted each time.
        """
        between_batches: float = duration_ms(pipeline.spec.trigger.interval or "0s") / 1000
        return now - self.since > patience * (1 << self.futile_restarts) + between_batches

    def restarted(self, now: float) -> None:
        """Notes that the driver is restarted because it is stuck."""
        self.futile_restarts, self.since = min(self.futile_restarts + 1, _MAX_DOUBLINGS), now


@dataclass
class Contact:
    """Whether the present driver answers the operator."""

    driver: str | None = None  # uid of its pod; None: no driver is ready
    since: float = 0.0  # when it last answered, or became ready
    unanswered: int = 0  # requests since then
    heard: bool = False  # whether it has answered once

    def update(self, driver: str | None, now: float, *, answered: bool) -> None:
        """Takes what a request brought. driver: uid of the pod that is ready; None: none is."""
        if driver != self.driver:
            self.driver, self.since, self.unanswered, self.heard = driver, now, 0, False
        if answered:
            self.since, self.unanswered, self.heard = now, 0, True
        else:
            self.unanswered += 1

    def is_lost(self, now: float) -> bool:
        """Whether a driver that is ready has not answered for too long."""
        return self.driver is not None and self.unanswered >= _UNANSWERED and now - self.since > _SILENT_S


def _digest(positions: Mapping[str, Mapping[str, int]]) -> int:
    return zlib.crc32(json.dumps(positions, sort_keys=True).encode())


@dataclass
class Memory:
    """About one pipeline."""

    tracker: ProgressTracker = field(default_factory=ProgressTracker)
    contact: Contact = field(default_factory=Contact)
    brokers_checked: float = _NEVER  # when the brokers' own settings and the group last passed their checks
    generation: int | None = None  # of the spec
    edited: float = _NEVER  # when the generation last changed
    steady: SteadyState | None = None
    written: str | None = None  # the resource's version after the last reconcile
    namespace_uid: str | None = None  # which does not change during the pipeline's life

    def update_generation(self, generation: int | None, now: float) -> None:
        """Notes the generation of the present spec."""
        if self.generation not in (None, generation):
            self.edited = now
        self.generation = generation


def versions(
    resource: Mapping[str, Any], objects: Iterable[Mapping[str, Any]], group_owner: str | None
) -> frozenset[str]:
    """A value that changes whenever anything in Kubernetes changes that a reconcile depends on."""
    known = {f"{o['kind']} {o['metadata']['uid']} {o['metadata']['resourceVersion']}" for o in (resource, *objects)}
    return frozenset({*known, f"group of {group_owner}"})
