"""What is killed, when, and at which step of the protocol. Pure: the same seed gives every guarantee the same failures."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ackwright_stream.jobspec import Guarantee

BROKERS = 3
_FIRST, _LAST = 0.08, 0.80  # of the records; enough is left after the last failure to see delivery resume


class Target(StrEnum):
    """What --fail names."""

    DRIVER = "driver"
    WORKER = "worker"
    BROKER = "broker"


class Moment(StrEnum):
    """Where in a batch a process dies."""

    MID_BATCH = "in the middle of a batch"
    COMMIT_STEPS = "between commit steps"
    ANY = "at any moment"


@dataclass(frozen=True)
class Strike:
    """One failure. at: the part of the source (0 to 1) that has to be delivered first; choice: for whatever is left open, 0 to 1."""

    target: Target
    moment: Moment
    at: float
    choice: float

    def pick(self, candidates: tuple[str, ...]) -> str:
        return candidates[int(self.choice * len(candidates))]

    @property
    def broker(self) -> int:
        """Which broker: ids start at 1."""
        return 1 + int(self.choice * BROKERS)


_STRIKES: Mapping[Target, tuple[Moment, ...]] = {
    Target.DRIVER: (Moment.MID_BATCH, Moment.COMMIT_STEPS),
    Target.WORKER: (Moment.MID_BATCH,),
    Target.BROKER: (Moment.ANY,),
}

# The points (ackwright_stream.fault_points) at which a process is met. In the middle of a batch: when some of a lane's records have been given
# to the producer; under at-least-once that is Spark's own, inside of the JVM, so there it is the transform before it. Between commit steps:
# wherever the guarantee has a gap between output and position. At-most-once: claimed, not processed. At-least-once: delivered, not yet
# advanced. Exactly-once has none, so it is looked for on either side of the commit.
_MID_PRODUCE, _MID_TRANSFORM = ("mid-produce",), ("mid-transform",)
POINTS: Mapping[Moment, Mapping[Guarantee, tuple[str, ...]]] = {
    Moment.MID_BATCH: {
        Guarantee.AT_MOST_ONCE: _MID_PRODUCE,
        Guarantee.AT_LEAST_ONCE: _MID_TRANSFORM,
        Guarantee.EXACTLY_ONCE: _MID_PRODUCE,
    },
    Moment.COMMIT_STEPS: {
        Guarantee.AT_MOST_ONCE: ("claimed",),
        Guarantee.AT_LEAST_ONCE: ("before-advance",),
        Guarantee.EXACTLY_ONCE: ("after-offsets", "before-commit", "after-commit"),
    },
}


def strikes(seed: int, targets: Collection[Target]) -> tuple[Strike, ...]:
    """The failures of a run, in their order: spread over the run, each somewhere in its own part of it."""
    chance = random.Random(seed)  # noqa: S311 - a plan that can be had again, not a secret
    wanted = [(target, moment) for target in Target if target in targets for moment in _STRIKES[target]]
    chance.shuffle(wanted)
    part = (_LAST - _FIRST) / max(1, len(wanted))
    return tuple(
        Strike(target, moment, at=_FIRST + part * (i + chance.random() / 2), choice=chance.random())
        for i, (target, moment) in enumerate(wanted)
    )


def point(strike: Strike, guarantee: Guarantee) -> str:
    """The point at which this failure meets a pipeline of this guarantee."""
    return strike.pick(POINTS[strike.moment][guarantee])
