"""A model of rows and positions in a database that loses what it committed last.

A replica that lags becomes the primary, or a backup is restored: of the commits a beginning remains. After that the
server is another one, except if the content is restored while it runs. One lane, one driver at a time, which may start
again at any time. Under at-least-once it writes the rows of a batch and then moves the position, under at-most-once the
reverse, in two transactions; under exactly-once in one. Each of them is known to be committed, and may still be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .variants import DIFFERS, DUPLICATED, LOST, Variant

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at-most-once", "at-least-once", "exactly-once"
RUNNING, BETWEEN, HALTED = "running", "between", "halted"  # between the two transactions of a batch


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    guarantee: str
    n: int = 3  # source offsets 0..n-1
    compares_server: bool = True  # each transaction fails on another server than the one that the driver has joined
    compares_start: bool = True  # at-least-once moves no position that is before the start of the batch
    restored_running: bool = False  # the server stays the same, and loses commits between two batches alone
    failures: int = 2
    starts: int = 3


class Commit(NamedTuple):
    """One transaction: rows of the offsets [start, until), and the position that it sets, if any."""

    start: int
    until: int
    offset: int | None
    driver: int = 0


class Driver(NamedTuple):
    mode: str = HALTED
    server: int = 0
    number: int = 0
    at: int = 0  # the next offset, as the driver knows it
    until: int = 0  # the end of the batch that is between its two transactions


class State(NamedTuple):
    commits: tuple[Commit, ...]
    server: int
    driver: Driver
    failures: int
    starts: int

    @property
    def offset(self) -> int:
        return next((c.offset for c in reversed(self.commits) if c.offset is not None), 0)

    @property
    def number(self) -> int:
        """The number of the driver that has set the position."""
        return next((c.driver for c in reversed(self.commits) if c.offset is not None), 0)

    @property
    def rows(self) -> tuple[int, ...]:
        return tuple(n for c in self.commits for n in range(c.start, c.until))


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        return State((), 0, Driver(), self.c.failures, self.c.starts)

    def successors(self, s: State) -> Iterator[Step]:
        d = s.driver
        if s.starts:
            joined = Driver(RUNNING, s.server, s.number + 1, s.offset)
            after = _with(s, joined, Commit(0, 0, s.offset, joined.number))
            yield f"driver {joined.number} starts at {s.offset}", after._replace(starts=s.starts - 1), None
        if s.failures and (not self.c.restored_running or d.mode == RUNNING):
            for remaining in range(len(s.commits)):
                after = s._replace(commits=s.commits[:remaining], failures=s.failures - 1)
                if not self.c.restored_running:
                    after = after._replace(server=s.server + 1)
                yield f"only {remaining} of {len(s.commits)} commits remain", after, None
        if d.mode == RUNNING:
            for until in range(d.at + 1, self.c.n + 1):
                yield from self._first(s, d, until)
        elif d.mode == BETWEEN:
            yield from self._second(s, d)

    def check(self, s: State) -> str | None:
        rows = s.rows
        if self.c.guarantee == EXACTLY_ONCE and rows != tuple(range(s.offset)):
            return f"position {s.offset}, {DIFFERS} {rows}"
        if self.c.guarantee == AT_MOST_ONCE and len(set(rows)) < len(rows):
            return f"committed output {rows}: {DUPLICATED}"
        if self.c.guarantee == AT_LEAST_ONCE and not set(range(s.offset)) <= set(rows):
            return f"position {s.offset}, output {rows}: {LOST}"
        return None

    def _first(self, s: State, d: Driver, until: int) -> Iterator[Step]:
        batch = f"[{d.at}, {until})"
        if self._is_other_server(s, d):
            yield f"{batch}: another server", _halted(s), None
        elif self.c.guarantee == AT_LEAST_ONCE:
            after = _with(s, d._replace(mode=BETWEEN, until=until), Commit(d.at, until, None))
            yield f"{batch}: rows", after, None
        elif (s.offset, s.number) != (d.at, d.number):  # a task compares position and number in its transaction
            yield f"{batch}: conflict", _halted(s), None
        elif self.c.guarantee == AT_MOST_ONCE:
            after = _with(s, d._replace(mode=BETWEEN, until=until), Commit(0, 0, until, d.number))
            yield f"{batch}: position", after, None
        else:
            yield f"{batch}: both", _with(s, d._replace(at=until), Commit(d.at, until, until, d.number)), None

    def _second(self, s: State, d: Driver) -> Iterator[Step]:
        batch, done = f"[{d.at}, {d.until})", d._replace(mode=RUNNING, at=d.until)
        if self._is_other_server(s, d):
            yield f"{batch}: another server", _halted(s), None
        elif self.c.guarantee == AT_MOST_ONCE:
            yield f"{batch}: rows", _with(s, done, Commit(d.at, d.until, None)), None
        elif self.c.compares_start and (s.offset < d.at or s.number != d.number):
            yield f"{batch}: position {s.offset} is before it", _halted(s), None
        else:
            yield f"{batch}: position", _with(s, done, Commit(0, 0, d.until, d.number)), None

    def _is_other_server(self, s: State, d: Driver) -> bool:
        return self.c.compares_server and d.server != s.server


def _with(s: State, driver: Driver, commit: Commit) -> State:
    return s._replace(driver=driver, commits=(*s.commits, commit))


def _halted(s: State) -> State:
    return s._replace(driver=s.driver._replace(mode=HALTED))


def safe(about: str, guarantee: str, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(guarantee, **cfg), None, False, Model)


def unsafe(violation: str, about: str, guarantee: str, **cfg: Any) -> Variant:
    """A variant that must end with a violation."""
    return Variant(about, Cfg(guarantee, **cfg), violation, False, Model)


VARIANTS = {
    "failover-alo": safe("at-least-once, two replicas that lag become the primary", AT_LEAST_ONCE),
    "failover-amo": safe("the same at-most-once", AT_MOST_ONCE),
    "failover-eo": safe("exactly-once compares position and number alone", EXACTLY_ONCE, compares_server=False),
    "failover-alo-unnoticed": unsafe(
        LOST, "the servers of rows and position are not compared", AT_LEAST_ONCE, compares_server=False
    ),
    "failover-amo-unnoticed": unsafe(
        DUPLICATED, "the servers of position and rows are not compared", AT_MOST_ONCE, compares_server=False
    ),
    "restore-alo": safe("the content is restored between two batches", AT_LEAST_ONCE, restored_running=True),
    "restore-amo": safe("the same at-most-once", AT_MOST_ONCE, restored_running=True),
    "restore-alo-forwards": unsafe(
        LOST,
        "a position that is before its batch is moved, too",
        AT_LEAST_ONCE,
        restored_running=True,
        compares_start=False,
    ),
}
