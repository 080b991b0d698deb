"""Exhaustive breadth-first search: the counterexample that it returns is a shortest one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .config import Cfg
from .model import Model, State


@dataclass(frozen=True)
class Result:
    """The result of one search."""

    states: int
    seconds: float  # wall-clock time
    depth: int
    complete: bool  # whether every reachable state was visited
    violation: str | None = None
    trace: tuple[str, ...] = ()  # the steps to the violation

    @property
    def verdict(self) -> str:
        if self.violation:
            return "UNSAFE"
        return "safe" if self.complete else "no violation, search incomplete"


def search(cfg: Cfg, max_seconds: float = 270.0, max_states: int = 6_000_000) -> Result:
    """Searches until a violation, the last state or a limit. Stores visited states and their parents as hashes."""
    model = Model(cfg)
    started_at = time.monotonic()
    init = model.initial()
    parent: dict[int, int | None] = {hash(init): None}
    frontier, depth = [init], 0

    def result(
        complete: bool, violation: str | None = None, at: int | None = None, last: tuple[str, ...] = ()
    ) -> Result:
        trace = (*rebuild(model, init, parent, at), *last) if violation else ()
        return Result(len(parent), time.monotonic() - started_at, depth, complete, violation, trace)

    while frontier:
        next_frontier: list[State] = []
        for s in frontier:
            hs = hash(s)
            for label, t, violation in model.successors(s):
                if t is None:
                    return result(False, violation, hs, (label,))
                ht = hash(t)
                if ht in parent:
                    continue
                parent[ht] = hs
                bad = model.check(t)
                if bad:
                    return result(False, bad, ht)
                next_frontier.append(t)
            if len(parent) > max_states or time.monotonic() - started_at > max_seconds:
                return result(False)
        frontier = next_frontier
        depth += 1
    return result(True)


def rebuild(model: Model, init: State, parent: dict[int, int | None], at: int | None) -> list[str]:
    """The labels of the steps to a state, computed by replaying the path of its parents' hashes."""
    chain = []
    while at is not None:
        chain.append(at)
        at = parent[at]
    s, labels = init, []
    for next_hash in reversed(chain[:-1]):
        label, s = next((label, t) for label, t, _ in model.successors(s) if t and hash(t) == next_hash)
        labels.append(label)
    return labels
