"""A model of a sink whose driver commits: each commit creates the next version of a table, which only one can create.

One lane, two drivers, and another program that writes to the table. A driver reads a version, and sends a request to
create the next one. The request may arrive late, also after its driver has stopped waiting, and its answer may be lost.
A driver joins (raises the pipeline's generation), reads, settles its lane with its number, and commits batches: rows
and position. What tasks have written before the commit is in no version, so the model does not have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from .variants import BACKWARDS, DIFFERS, DUPLICATED, Variant

IDLE, JOINED, READ, RUNNING = "idle", "joined", "read", "running"
JOIN, SETTLE, BATCH = "join", "settle", "batch"


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    n: int = 2  # source offsets 0..n-1
    rebases: bool = False  # the library moves a request that was overtaken to the next free version
    # A commit carries the generation's transaction: a library that rebases refuses it if another commit has it as well.
    carries_generation: bool = True
    every_commit_counts: bool = True  # False: joins and settles create no version, and are accepted at any
    compares_generation: bool = True  # after a fresh read, with that of its driver
    compares_position: bool = True  # after a fresh read, with that of the decision
    reads_again: bool = True  # after an unknown outcome
    batches: int = 3  # the budgets: number of events in one run
    starts: int = 3
    others: int = 1  # commits of the other program


class Position(NamedTuple):
    offset: int
    driver: int


class Driver(NamedTuple):
    mode: str = IDLE
    generation: int = 0
    number: int = 0
    version: int = 0  # of the table, that it has read
    position: Position = Position(0, 0)  # in that version


class Request(NamedTuple):
    """A version of the table that a driver wants to create."""

    driver: int
    awaited: bool  # whether the driver waits for the answer
    version: int
    kind: str
    generation: int
    position: Position  # that it sets; of a join meaningless
    start: int  # the first row


class State(NamedTuple):
    version: int
    generation: int
    position: Position
    rows: tuple[int, ...]  # the source offsets of the committed rows, in the order of the commits
    touched: int  # the last version that has the generation's transaction
    drivers: tuple[Driver, Driver]
    requests: tuple[Request, ...]
    batches: int
    starts: int
    others: int


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        budgets = (self.c.batches, self.c.starts, self.c.others)
        return State(0, 0, Position(0, 0), (), 0, (Driver(), Driver()), (), *budgets)

    def check(self, s: State) -> str | None:
        if any(a >= b for a, b in pairwise(s.rows)):
            return f"committed output {s.rows}: {DUPLICATED}"
        if s.rows != tuple(range(s.position.offset)):
            return f"position {s.position.offset}, {DIFFERS} {s.rows}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        if s.others:
            yield "another program commits", s._replace(version=s.version + 1, others=s.others - 1), None
        for r in sorted(set(s.requests)):
            yield f"{r}: is lost", self._unanswered(_without(s, r), r), None
            if r.awaited:  # it may still arrive
                yield f"{r}: times out", self._unanswered(_with(_without(s, r), r._replace(awaited=False)), r), None
            yield from self._arrives(s, r)
        for i, driver in enumerate(s.drivers):
            if not any(r.awaited and r.driver == i for r in s.requests):
                yield from self._driver(s, i, driver)

    def _driver(self, s: State, i: int, d: Driver) -> Iterator[Step]:
        """A driver may start again at any time: its process was killed, or its query failed."""
        name = f"D{i + 1}"
        if s.starts:
            after = _with_driver(s, i, Driver())._replace(starts=s.starts - 1)
            join = Request(i, True, s.version + 1, JOIN, s.generation + 1, Position(0, 0), 0)
            yield f"{name}: reads version {s.version} and joins", _with(after, join), None
        if d.mode == JOINED and self.c.compares_generation and s.generation != d.generation:
            yield f"{name}: is superseded", _with_driver(s, i, Driver()), None
        elif d.mode == JOINED:
            read = d._replace(mode=READ, version=s.version, number=s.position.driver + 1, position=s.position)
            yield f"{name}: reads {s.position}", _with_driver(s, i, read), None
        if d.mode == READ:
            settle = Position(d.position.offset, d.number)
            yield f"{name}: settles", _with(s, Request(i, True, d.version + 1, SETTLE, d.generation, settle, 0)), None
        if d.mode == RUNNING and s.batches:
            for until in range(d.position.offset + 1, self.c.n + 1):
                target = Position(until, d.number)
                r = Request(i, True, d.version + 1, BATCH, d.generation, target, d.position.offset)
                yield f"{name}: commits {r}", _with(s._replace(batches=s.batches - 1), r), None

    def _arrives(self, s: State, r: Request) -> Iterator[Step]:
        without = _without(s, r)
        if r.kind != BATCH and not self.c.every_commit_counts:
            yield from self._creates(without, r, s.version)
        elif r.version == s.version + 1 or (
            self.c.rebases and not (self.c.carries_generation and s.touched >= r.version)
        ):
            yield from self._creates(without, r, s.version + 1)
        elif not r.awaited:
            yield f"{r}: is refused", without, None
        else:
            yield from self._refused(without, r)

    def _creates(self, s: State, r: Request, version: int) -> Iterator[Step]:
        if r.kind != JOIN and r.position.offset < s.position.offset:
            yield f"{r}: creates {version}", None, f"{BACKWARDS}: {s.position.offset} -> {r.position.offset}"
            return
        after = s._replace(version=version, touched=version)
        after = after._replace(generation=r.generation) if r.kind == JOIN else after._replace(position=r.position)
        if r.kind == BATCH:
            after = after._replace(rows=(*s.rows, *range(r.start, r.position.offset)))
        yield f"{r}: creates {version}, outcome unknown", self._unanswered(after, r), None
        if r.awaited:
            d = s.drivers[r.driver]._replace(version=version)
            if r.kind == JOIN:
                d = d._replace(mode=JOINED, generation=r.generation)
            else:
                d = d._replace(mode=RUNNING, position=r.position)
            yield f"{r}: creates {version}", _with_driver(after, r.driver, d), None

    def _refused(self, s: State, r: Request) -> Iterator[Step]:
        """The driver reads again. If nothing of the pipeline has changed, it sends the request for the next version."""
        d = s.drivers[r.driver]
        if r.kind == JOIN:
            again = r._replace(version=s.version + 1, generation=s.generation + 1)
            yield f"{r}: is refused, and joins again", _with(s, again), None
        elif self.c.compares_generation and s.generation != r.generation:
            yield f"{r}: is superseded", _with_driver(s, r.driver, Driver()), None
        elif r.kind == BATCH and self.c.compares_position and s.position != d.position:
            yield f"{r}: conflict", _with_driver(s, r.driver, Driver()), None
        else:
            yield f"{r}: is refused, and sent again", _with(s, r._replace(version=s.version + 1)), None

    def _unanswered(self, s: State, r: Request) -> State:
        """The driver, if it waits, does not know the outcome: its query fails, and it joins again."""
        if not r.awaited:
            return s
        if self.c.reads_again or r.kind != BATCH:
            return _with_driver(s, r.driver, Driver())
        return _with_driver(s, r.driver, s.drivers[r.driver]._replace(version=s.version))


def _with_driver(s: State, i: int, d: Driver) -> State:
    return s._replace(drivers=(d, s.drivers[1]) if i == 0 else (s.drivers[0], d))


def _with(s: State, r: Request) -> State:
    return s._replace(requests=tuple(sorted((*s.requests, r))))


def _without(s: State, r: Request) -> State:
    remaining = list(s.requests)
    remaining.remove(r)
    return s._replace(requests=tuple(remaining))


def safe(about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(**cfg), None, slow, Model)


def unsafe(violation: str, about: str, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, Cfg(**cfg), violation, False, Model)


VARIANTS = {
    "cas": safe("two drivers that start three times, three batches, another program"),
    "cas-large": safe("the same, with three offsets and four batches", slow=True, n=3, batches=4),
    "cas-rebase-generation": safe(
        "the library rebases, and refuses commits that have the generation's transaction", rebases=True
    ),
    "cas-rebase": unsafe(
        BACKWARDS,
        "the library rebases, and commits do not have the generation",
        rebases=True,
        carries_generation=False,
    ),
    "cas-properties": unsafe(
        BACKWARDS,
        "joins and settles create no version, like a change of an Iceberg table's properties alone",
        every_commit_counts=False,
    ),
    "cas-generation": unsafe(BACKWARDS, "generations are not compared after a fresh read", compares_generation=False),
    "cas-position": safe(
        "positions are not compared after a fresh read: in a generation the driver knows of every commit, and after "
        "an unknown outcome it joins again",
        compares_position=False,
    ),
    "cas-unread": unsafe(
        DUPLICATED,
        "after an unknown outcome the driver commits the batch again, to the version after the latest, without reading",
        reads_again=False,
        compares_position=False,
    ),
}
