"""An exhaustive breadth-first search, so that a counterexample is a shortest one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from .config import Cfg
from .model import Model, State


@dataclass(frozen=True)
class Result:
    """complete: every reachable state was seen. trace: the steps to the violation. seconds: wall time."""

    states: int
    seconds: float
    depth: int
    complete: bool
    violation: str | None = None
    trace: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        if self.violation:
            return "UNSAFE"
        return "safe" if self.complete else "nothing found, search not complete"


def search(cfg: Cfg, max_seconds: float = 270.0, max_states: int = 6_000_000) -> Result:
    """Searches until a violation, the end or a limit. Visited states are kept as 64-bit hashes with their parent's."""
    model = Model(cfg)
    begin = time.monotonic()
    init = model.initial()
    parent: dict[int, int | None] = {hash(init): None}
    frontier, depth = [init], 0

    def result(
        complete: bool, violation: str | None = None, at: int | None = None, last: tuple[str, ...] = ()
    ) -> Result:
        trace = (*rebuild(model, init, parent, at), *last) if violation else ()
        return Result(len(parent), time.monotonic() - begin, depth, complete, violation, trace)

    while frontier:
        following: list[State] = []
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
                following.append(t)
            if len(parent) > max_states or time.monotonic() - begin > max_seconds:
                return result(False)
        frontier = following
        depth += 1
    return result(True)


def rebuild(model: Model, init: State, parent: dict[int, int | None], at: int | None) -> list[str]:
    """The labels of the way to a state, by replay along the parents' hashes."""
    chain = []
    while at is not None:
        chain.append(at)
        at = parent[at]
    s, labels = init, []
    for want in reversed(chain[:-1]):
        label, s = next((label, t) for label, t, _ in model.successors(s) if t and hash(t) == want)
        labels.append(label)
    return labels
