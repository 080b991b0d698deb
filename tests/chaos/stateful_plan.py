"""What a campaign of a stateful pipeline does, in which order. Pure: it depends on the seed alone."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

KILLS_A_ROUND = 10


class Action(StrEnum):
    """What is killed, or happens to the directory of the state."""

    AT_POINT = "driver killed at a point"
    ANY_TIME = "driver killed at any time"
    WORKER = "Spark's Python worker killed"
    ZOMBIE = "driver suspended, overtaken, continued"
    RACE = "drivers started at the same time and killed"
    DELETED = "state deleted"  # the next driver halts, and a person accepts that the state is lost
    OLDER = "state replaced by an older copy"  # the next drivers run the batches since then again


LOSSES = (Action.DELETED, Action.OLDER)
_KILLS = {Action.AT_POINT: 4, Action.ANY_TIME: 3, Action.WORKER: 1, Action.ZOMBIE: 1, Action.RACE: 1}  # with weights


@dataclass(frozen=True)
class Round:
    """One pipeline and what happens to it."""

    number: int  # from 1
    actions: tuple[Action, ...]

    @property
    def kills(self) -> int:
        return sum(map(kills_of, self.actions))


def kills_of(action: Action) -> int:
    """How many kills the action makes."""
    return 0 if action in LOSSES else 2 if action is Action.RACE else 1


def plan(kills: int, seed: int) -> list[Round]:
    """The rounds of a campaign with so many kills. Each round loses the state in each way once."""
    dice = random.Random(f"{seed}/stateful")
    rounds: list[Round] = []
    left = kills
    while left:
        count = min(left, KILLS_A_ROUND)
        rounds.append(Round(len(rounds) + 1, _actions(dice, count)))
        left -= count
    return rounds


def _actions(dice: random.Random, kills: int) -> tuple[Action, ...]:
    actions = list(LOSSES)
    while left := kills - sum(map(kills_of, actions)):
        possible = {action: weight for action, weight in _KILLS.items() if kills_of(action) <= left}
        actions += dice.choices(list(possible), list(possible.values()))
    return tuple(dice.sample(actions, len(actions)))
