"""Which processes the demo kills, when, and at which step of the protocol.

The same seed gives every guarantee the same kills.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ackwright.local.demo.pipelines import BATCHES, Sink
from ackwright_stream.jobspec import Guarantee

BROKERS = 3
_FIRST, _LAST = 0.08, 0.80  # fractions of the records; the rest shows that delivery resumes after the last kill


class Target(StrEnum):
    """What --fail accepts."""

    DRIVER = "driver"
    WORKER = "worker"
    BROKER = "broker"
    DATABASE = "database"


_PROCESSES = (Target.DRIVER, Target.WORKER, Target.BROKER)
# What can be killed, by sink.
TARGETS: Mapping[Sink, tuple[Target, ...]] = {
    Sink.KAFKA: _PROCESSES,
    Sink.POSTGRES: tuple(Target),
    Sink.DELTA: _PROCESSES,
    Sink.ICEBERG: _PROCESSES,
    Sink.FILES: _PROCESSES,
}


class Moment(StrEnum):
    """When in a batch a process is killed."""

    MID_BATCH = "in the middle of a batch"
    COMMIT_STEPS = "between commit steps"
    ANY = "at any moment"


@dataclass(frozen=True)
class Kill:
    """One scheduled kill."""

    target: Target
    moment: Moment
    at: float  # fraction of the source (0 to 1) that is delivered before the kill
    choice: float  # 0 to 1; selects among the candidates that target and moment leave open

    def pick(self, candidates: tuple[str, ...]) -> str:
        return candidates[int(self.choice * len(candidates))]

    @property
    def broker(self) -> int:
        """The id of the broker to kill; ids start at 1."""
        return 1 + int(self.choice * BROKERS)


_MOMENTS: Mapping[Target, tuple[Moment, ...]] = {
    Target.DRIVER: (Moment.MID_BATCH, Moment.COMMIT_STEPS),
    Target.WORKER: (Moment.MID_BATCH,),
    Target.BROKER: (Moment.ANY,),
    Target.DATABASE: (Moment.ANY,),
}

# The job's fault points at which a process is killed.
# In the middle of a batch: some records of a lane have been passed to the sink. At-least-once into Kafka uses Spark's
# own producer in the JVM, so there the kill hits the transform before it.
# Between commit steps: between output and position. At-most-once: position committed, records not processed.
# At-least-once: records delivered, position not committed. Exactly-once commits both together, so the kill hits just
# before or just after the commit.
_MID_PRODUCE, _MID_TRANSFORM = ("mid-produce",), ("mid-transform",)
_CLAIMED, _BEFORE_ADVANCE, _COMMIT = ("claimed",), ("before-advance",), ("before-commit", "after-commit")
_STAGED: Mapping[Moment, Mapping[Guarantee, tuple[str, ...]]] = {
    Moment.MID_BATCH: dict.fromkeys(Guarantee, (*_MID_PRODUCE, *_MID_TRANSFORM)),
    Moment.COMMIT_STEPS: {
        Guarantee.AT_MOST_ONCE: _CLAIMED,
        Guarantee.AT_LEAST_ONCE: _BEFORE_ADVANCE,
        Guarantee.EXACTLY_ONCE: ("staged", *_COMMIT),
    },
}
FAULT_POINTS: Mapping[Sink, Mapping[Moment, Mapping[Guarantee, tuple[str, ...]]]] = {
    Sink.KAFKA: {
        Moment.MID_BATCH: {
            Guarantee.AT_MOST_ONCE: _MID_PRODUCE,
            Guarantee.AT_LEAST_ONCE: _MID_TRANSFORM,
            Guarantee.EXACTLY_ONCE: _MID_PRODUCE,
        },
        Moment.COMMIT_STEPS: {
            Guarantee.AT_MOST_ONCE: _CLAIMED,
            Guarantee.AT_LEAST_ONCE: _BEFORE_ADVANCE,
            Guarantee.EXACTLY_ONCE: ("after-offsets", *_COMMIT),
        },
    },
    Sink.POSTGRES: {
        Moment.MID_BATCH: dict.fromkeys(Guarantee, (*_MID_PRODUCE, *_MID_TRANSFORM)),
        Moment.COMMIT_STEPS: {
            Guarantee.AT_MOST_ONCE: _CLAIMED,
            Guarantee.AT_LEAST_ONCE: _BEFORE_ADVANCE,
            Guarantee.EXACTLY_ONCE: _COMMIT,
        },
    },
    Sink.DELTA: _STAGED,
    Sink.ICEBERG: _STAGED,
    Sink.FILES: {
        Moment.MID_BATCH: dict.fromkeys(Guarantee, (*_MID_PRODUCE, *_MID_TRANSFORM)),
        Moment.COMMIT_STEPS: {
            Guarantee.AT_MOST_ONCE: _CLAIMED,
            Guarantee.AT_LEAST_ONCE: _BEFORE_ADVANCE,
            Guarantee.EXACTLY_ONCE: ("file-created", *_COMMIT),
        },
    },
}

# A task of a stateful pipeline has stored its state, or the driver is before or behind the commit of the batch.
STATEFUL_POINTS: Mapping[Moment, tuple[str, ...]] = {
    Moment.MID_BATCH: ("stored",),
    Moment.COMMIT_STEPS: ("evaluated", *_COMMIT, "batch-end"),
}


def schedule(seed: int, targets: Collection[Target]) -> tuple[Kill, ...]:
    """The kills of a run in order: each at a random place in its own part of the run."""
    generator = random.Random(seed)  # noqa: S311 - a schedule that can be repeated, not a secret
    kills = [(target, moment) for target in Target if target in targets for moment in _MOMENTS[target]]
    generator.shuffle(kills)
    part = (_LAST - _FIRST) / max(1, len(kills))
    shift = min(part / 2, part - 1 / BATCHES)  # at least one batch from a kill to the next
    return tuple(
        Kill(target, moment, at=_FIRST + part * i + shift * generator.random(), choice=generator.random())
        for i, (target, moment) in enumerate(kills)
    )


def fault_point_name(kill: Kill, sink: Sink, guarantee: Guarantee, *, stateful: bool = False) -> str:
    """The fault point at which this kill hits a pipeline with this sink and guarantee."""
    if stateful:
        return kill.pick(STATEFUL_POINTS[kill.moment])
    return kill.pick(FAULT_POINTS[sink][kill.moment][guarantee])
