"""What the operator remembers of a pipeline between two looks: it saves work, and tells how long something has lasted.

Nothing depends on it: lost with the process, it is found out again. Moments are those of a monotonic clock, in seconds. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ackwright.api.quantities import duration_ms
from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Status
from ackwright.planning.observed import Progress

_NEVER = float("-inf")


@dataclass(frozen=True)
class Calm:
    """The last look found nothing to do and nothing new to say. versions: of all that it looked at in Kubernetes; until: when Kafka is to
    be looked at again."""

    versions: frozenset[str]
    until: float
    pipeline: DeliveryPipeline
    status: Status


@dataclass
class Pace:
    """Whether a driver's positions move while it has lag. since: when they were first seen where they are; in_vain: how often a driver was
    replaced because of that."""

    positions: int | None = None
    since: float = 0.0
    in_vain: int = 0

    def saw(self, told: Progress | None, now: float) -> None:
        if told is not None and told.positions != self.positions:
            self.in_vain = 0 if self.positions is not None else self.in_vain
            self.positions = told.positions
            self.since = now
        elif told is None or told.state != "running" or told.lag == 0:
            self.since = now

    def is_stuck(self, pipeline: DeliveryPipeline, patience: float, now: float) -> bool:
        """Positions move at the end of a batch: one that takes longer than we wait must not be cut off each time."""
        between_batches: float = duration_ms(pipeline.spec.trigger.interval or "0s") / 1000
        return now - self.since > patience * (1 << self.in_vain) + between_batches

    def replaced(self, now: float) -> None:
        self.in_vain, self.since = min(self.in_vain + 1, 6), now


@dataclass
class Memory:
    """generation, edited: of the spec, and when it was seen to change. written: the resource's version when the last look ended."""

    pace: Pace = field(default_factory=Pace)
    brokers_checked: float = _NEVER
    generation: int | None = None
    edited: float = _NEVER
    calm: Calm | None = None
    written: str | None = None

    def saw_generation(self, generation: int | None, now: float) -> None:
        if self.generation not in (None, generation):
            self.edited = now
        self.generation = generation


def versions(
    resource: Mapping[str, Any], objects: Iterable[Mapping[str, Any]], owner_of_group: str | None
) -> frozenset[str]:
    """Differs when anything in Kubernetes that a look depends on has changed."""
    found = {f"{o['kind']} {o['metadata']['uid']} {o['metadata']['resourceVersion']}" for o in (resource, *objects)}
    return frozenset({*found, f"positions {owner_of_group}"})
