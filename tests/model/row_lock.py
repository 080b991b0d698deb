"""A model of a sink in a database: positions and rows change in one transaction, which locks the rows of its positions.

One lane, two drivers. A driver joins (raises the pipeline's generation), reads, and commits the position again with
its number. A task opens a transaction, locks and reads the generation and the position, decides, and commits rows and
position. Any transaction may stay open for long, be terminated by the server, or commit without its client's knowledge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from .variants import BACKWARDS, DIFFERS, DUPLICATED, Variant

IDLE, JOINED, READ, RUNNING, HALTED = "idle", "joined", "read", "running", "halted"
OPENING, OPEN = "opening", "open"


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    n: int = 3  # source offsets 0..n-1
    locks: bool = True  # a transaction locks what it reads: FOR UPDATE the position, FOR SHARE the generation
    generation: bool = True  # a transaction compares the generation with that of its driver
    reads: bool = True  # an attempt decides from the position; otherwise the driver's memory decides
    locks_first: bool = True  # it reads what it has locked; otherwise it locks after the read
    own_number: bool = True  # it continues only from a position with its driver's number
    attempts: int = 4  # the budgets: number of events in one run
    starts: int = 3


class Position(NamedTuple):
    offset: int
    driver: int


class Driver(NamedTuple):
    mode: str = IDLE
    generation: int = 0
    number: int = 0
    at: int = 0  # the next offset, as the driver knows it


class Transaction(NamedTuple):
    """A task's transaction in the server."""

    driver: int
    generation: int
    number: int
    start: int
    until: int
    step: str = OPENING
    has_read: bool = False  # before it has the lock


class State(NamedTuple):
    generation: int
    position: Position
    rows: tuple[int, ...]  # the source offsets of the committed rows, in the order of the commits
    drivers: tuple[Driver, Driver]
    transactions: tuple[Transaction, ...]
    attempts: int
    starts: int


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        return State(0, Position(0, 0), (), (Driver(), Driver()), (), self.c.attempts, self.c.starts)

    def successors(self, s: State) -> Iterator[Step]:
        for i, driver in enumerate(s.drivers):
            yield from self._driver(s, i, driver)
        for t in sorted(set(s.transactions)):
            yield f"T{t}: terminated", _without(s, t), None
            if t.step == OPENING:
                yield from self._open(s, t)
            else:
                yield from self._commit(s, t)

    def check(self, s: State) -> str | None:
        if any(a >= b for a, b in pairwise(s.rows)):
            return f"committed output {s.rows}: {DUPLICATED}"
        if s.rows != tuple(range(s.position.offset)):
            return f"position {s.position.offset}, {DIFFERS} {s.rows}"
        return None

    def _is_locked(self, s: State) -> bool:
        return self.c.locks and any(t.step == OPEN for t in s.transactions)

    def _driver(self, s: State, i: int, d: Driver) -> Iterator[Step]:
        """A driver may start again at any time: its process was killed, or its query failed."""
        name = f"D{i + 1}"
        if s.starts and not self._is_locked(s):
            joined = d._replace(mode=JOINED, generation=s.generation + 1)
            after = s._replace(generation=s.generation + 1, starts=s.starts - 1)
            yield f"{name}: joins", _with_driver(after, i, joined), None
        if d.mode == JOINED:
            known = d._replace(mode=READ, number=s.position.driver + 1, at=s.position.offset)
            yield f"{name}: reads {s.position}", _with_driver(s, i, known), None
        if d.mode == READ and not self._is_locked(s):
            if self.c.generation and d.generation != s.generation:
                yield f"{name}: is superseded", _with_driver(s, i, d._replace(mode=HALTED)), None
            elif d.at < s.position.offset:
                yield f"{name}: settles", None, f"{BACKWARDS}: {s.position.offset} -> {d.at}"
            else:
                after = s._replace(position=Position(d.at, d.number))
                running = d._replace(mode=RUNNING)
                yield f"{name}: settles {after.position}", _with_driver(after, i, running), None
                yield f"{name}: settles {after.position}, outcome unknown", after, None
        if d.mode == RUNNING and s.attempts:
            for until in range(d.at + 1, self.c.n + 1):
                t = Transaction(i, d.generation, d.number, d.at, until)
                after = s._replace(attempts=s.attempts - 1, transactions=tuple(sorted((*s.transactions, t))))
                yield f"{name}: opens {t}", after, None

    def _open(self, s: State, t: Transaction) -> Iterator[Step]:
        """The transaction takes its locks, or waits for them; then it decides."""
        if not self.c.locks_first and not t.has_read:
            yield from self._decide(s, t, t._replace(has_read=True))
        elif not self._is_locked(s):
            if t.has_read:
                yield f"T{t}: locks", _changed(s, t, t._replace(step=OPEN)), None
            else:
                yield from self._decide(s, t, t._replace(step=OPEN))

    def _decide(self, s: State, t: Transaction, continued: Transaction) -> Iterator[Step]:
        d = s.drivers[t.driver]
        if self.c.generation and t.generation != s.generation:
            yield f"T{t}: is superseded", self._failed(s, t), None
        elif not self.c.reads:
            yield f"T{t}: continues unread", _changed(s, t, continued), None
        elif self.c.own_number and s.position.driver != t.number:
            yield f"T{t}: conflict", self._failed(s, t), None
        elif s.position.offset >= t.until:
            skipped = d._replace(at=max(d.at, t.until)) if self._is_of(d, t) else d
            yield f"T{t}: skips", _with_driver(_without(s, t), t.driver, skipped), None
        elif s.position.offset == t.start:
            yield f"T{t}: continues", _changed(s, t, continued), None
        else:
            yield f"T{t}: conflict", self._failed(s, t), None

    def _commit(self, s: State, t: Transaction) -> Iterator[Step]:
        rows = (*s.rows, *range(t.start, t.until))
        if t.until < s.position.offset:
            yield f"T{t}: commits", None, f"{BACKWARDS}: {s.position.offset} -> {t.until}"
            return
        after = _without(s, t)._replace(rows=rows, position=Position(t.until, t.number))
        yield f"T{t}: commits, outcome unknown", after, None
        d = s.drivers[t.driver]
        if self._is_of(d, t):
            yield f"T{t}: commits", _with_driver(after, t.driver, d._replace(at=t.until)), None

    def _failed(self, s: State, t: Transaction) -> State:
        """The driver's query ends, if it is still the one of the transaction."""
        d = s.drivers[t.driver]
        return _with_driver(_without(s, t), t.driver, d._replace(mode=HALTED) if self._is_of(d, t) else d)

    @staticmethod
    def _is_of(d: Driver, t: Transaction) -> bool:
        return d.mode == RUNNING and (d.generation, d.number) == (t.generation, t.number)


def _with_driver(s: State, i: int, d: Driver) -> State:
    return s._replace(drivers=(d, s.drivers[1]) if i == 0 else (s.drivers[0], d))


def _without(s: State, t: Transaction) -> State:
    remaining = list(s.transactions)
    remaining.remove(t)
    return s._replace(transactions=tuple(remaining))


def _changed(s: State, t: Transaction, to: Transaction) -> State:
    without = _without(s, t)
    return without._replace(transactions=tuple(sorted((*without.transactions, to))))


def safe(about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(**cfg), None, slow, Model)


def unsafe(violation: str, about: str, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, Cfg(**cfg), violation, False, Model)


SMALL: dict[str, Any] = {"n": 2, "attempts": 3}
VARIANTS = {
    "rowlock": safe("two drivers that start three times, three tasks", n=2, attempts=3),
    "rowlock-large": safe("the same, three offsets and four tasks", slow=True),
    "rowlock-number": safe(
        "an attempt compares no driver number: generation and locks suffice", own_number=False, **SMALL
    ),
    "rowlock-none": unsafe(DUPLICATED, "positions are read without FOR UPDATE", locks=False, **SMALL),
    "rowlock-generation": unsafe(BACKWARDS, "generations are not compared", generation=False, **SMALL),
    "rowlock-late": unsafe(BACKWARDS, "the position is read before it is locked", locks_first=False, **SMALL),
    "rowlock-unread": unsafe(
        DUPLICATED, "after an unknown outcome the next attempt does not read", reads=False, **SMALL
    ),
}
