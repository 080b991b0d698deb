"""What a campaign does, in which order. Pure: it depends on the seed alone.

A campaign consists of rounds, each with a new pipeline, so that its output is judged while it is small and each fault
meets lanes in another state. Of four rounds in a row one has 128 lanes. It and another one also run complete jobs with
Spark.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ackwright_stream.jobspec import Guarantee

KILLS_A_ROUND = 50
FAULTS_A_ROUND = 3
STORM = 4  # drivers that run, and are killed, at the same time
WORKERS = 3  # Python workers that are killed in one run of Spark


class Kill(StrEnum):
    """What is killed or stopped."""

    AT_POINT = "process killed at a point"
    ANY_TIME = "process killed at any time"
    ZOMBIE = "process stopped, overtaken, continued"
    BROKER_KILLED = "broker killed and started again"
    BROKER_HUNG = "broker suspended and resumed"
    SPARK_DRIVER = "Spark driver's group killed"
    SPARK_ZOMBIE = "Spark driver suspended, overtaken, continued"
    SPARK_WORKER = "Spark's Python worker killed"


class Fault(StrEnum):
    """What else happens to a pipeline. The values are the names for --faults."""

    OFFSETS = "offsets"  # set by hand: refused while a driver is a member, then halted at, then accepted or set back
    TOPIC = "topic"  # a source topic is deleted and recreated under a driver
    PARTITIONS = "partitions"  # added to the sink and to a source topic
    QUOTA = "quota"  # the brokers throttle every client
    NETWORK = "network"  # all packets from a broker, or all to it, are dropped
    COORDINATORS = "coordinators"  # leaders of the internal topics move


DESCRIPTIONS = {
    Fault.OFFSETS: "offsets reset",
    Fault.TOPIC: "topic replaced",
    Fault.PARTITIONS: "partitions added",
    Fault.QUOTA: "quota set",
    Fault.NETWORK: "network cut one way",
    Fault.COORDINATORS: "coordinators moved",
}


@dataclass(frozen=True)
class Storm:
    """Drivers that start at the same time and are killed one after the other. kills: how each is killed."""

    kills: tuple[Kill, ...]


Action = Kill | Fault | Storm


@dataclass(frozen=True)
class Round:
    """One pipeline and what happens to it."""

    number: int  # from 1
    topics: int
    partitions: int  # of each topic
    actions: tuple[Action, ...]

    @property
    def kills(self) -> int:
        return sum(map(kills_of, self.actions))

    @property
    def runs_spark(self) -> bool:
        return any(isinstance(a, Kill) and a.startswith("Spark") for a in self.actions)


def kills_of(action: Action) -> int:
    """How many kills the action makes."""
    if isinstance(action, Storm):
        return len(action.kills)
    return 0 if isinstance(action, Fault) else WORKERS if action is Kill.SPARK_WORKER else 1


def plan(
    guarantee: Guarantee, kills: int, seed: int, faults: Sequence[Fault] = (), *, spark: bool = True
) -> list[Round]:
    """Returns the rounds of a campaign with so many kills in total."""
    dice = random.Random(f"{seed}/{guarantee}")
    rounds: list[Round] = []
    shapes: list[str] = []
    due: list[Fault] = []
    left = kills
    while left:
        if not shapes:
            shapes = dice.sample(["spark", "wide", "narrow", "narrow"], 4)
            shapes = shapes if rounds else sorted(shapes, key="spark".__ne__)  # a short campaign runs Spark as well
        shape = shapes.pop(0)
        count = min(left, KILLS_A_ROUND)
        actions: list[Action] = (
            list(_spark_kills(guarantee, dice, count)) if spark and shape in ("spark", "wide") else []
        )
        if count > KILLS_A_ROUND // 2:
            actions.append(dice.choice((Kill.BROKER_KILLED, Kill.BROKER_HUNG)))
        actions += _process_kills(dice, count - sum(map(kills_of, actions)))
        for _ in range(min(FAULTS_A_ROUND, len(faults))):
            due = due or dice.sample(list(faults), len(faults))
            actions.append(due.pop())
        dice.shuffle(actions)
        topics, partitions = (4, 32) if shape == "wide" else dice.choice(((1, 3), (2, 3), (1, 6)))
        rounds.append(Round(len(rounds) + 1, topics, partitions, tuple(actions)))
        left -= count
    return rounds


def _spark_kills(guarantee: Guarantee, dice: random.Random, count: int) -> list[Kill]:
    """At most two in a round: a start of Spark takes as long as ten starts of a lane process."""
    drivers = dice.sample([Kill.SPARK_DRIVER, Kill.SPARK_ZOMBIE], 2)
    # At-least-once writes without Python workers.
    without_workers = guarantee is Guarantee.AT_LEAST_ONCE or count < WORKERS
    kinds = drivers if without_workers else [Kill.SPARK_WORKER, drivers[0]]
    return kinds[: 2 if count > KILLS_A_ROUND // 2 else 1]


def _process_kills(dice: random.Random, count: int) -> list[Action]:
    actions: list[Action] = []
    while count:
        kind = dice.choices((Kill.AT_POINT, Kill.ANY_TIME, Kill.ZOMBIE), (4, 4, 1))[0]
        if kind is Kill.ZOMBIE or count < STORM:
            actions.append(kind)
            count -= 1
        else:
            actions.append(Storm(tuple(dice.choices((Kill.AT_POINT, Kill.ANY_TIME), k=STORM))))
            count -= STORM
    return actions
