"""Exhaustive breadth-first search: the counterexample that it returns is a shortest one."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)


class Model(Protocol[S]):
    """The transitions of one variant."""

    def initial(self) -> S: ...

    def successors(self, s: S) -> Iterator[tuple[str, S | None, str | None]]:
        """Every next state: label, the state or None, the violation or None."""
        ...

    def check(self, s: S) -> str | None:
        """The violation in a state, or None."""
        ...


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


def search(model: Model[S], max_seconds: float = 270.0, max_states: int = 6_000_000) -> Result:
    """Searches until a violation, the last state or a limit. Stores visited states and their parents as hashes."""
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
        next_frontier: list[S] = []
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


def rebuild(model: Model[S], init: S, parent: dict[int, int | None], at: int | None) -> list[str]:
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
