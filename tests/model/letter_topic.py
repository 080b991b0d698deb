"""A model of dead letters in a topic beside a sink outside Kafka: two stores, which no commit changes together.

One lane, two drivers. A batch is a succession of requests: dead letters to the topic (L), rows and position in one
commit (C), rows alone (R), the position alone (A). Commits compare generation and position, which compare_and_set.py
and named_files.py prove. The topic fences nobody: it takes the dead letters of each program, also late. It is
compacted: of the records with one key a reader needs the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .variants import DIFFERS, LOST, TWICE, Variant

LETTERS, COMMIT, ROWS, ADVANCE = "LCRA"


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    steps: str  # of a batch, in their order
    guarantee: str = "EO"  # EO | AMO | ALO
    n: int = 3  # source offsets 0..n-1
    malformed: frozenset[int] = frozenset({0, 2})
    acknowledged: bool = True  # False: the next step does not wait for the answer to dead letters
    keyed: bool = True  # False: a reader counts the records of a dead letter
    # False: another pipeline, which reads the same source, writes its dead letters with the same keys.
    own_keys: bool = True
    batches: int = 4  # the budgets: number of events in one run
    starts: int = 3


class Driver(NamedTuple):
    generation: int = 0  # 0: it does not run
    offset: int = 0  # where it reads the source
    until: int = 0  # the end of its batch
    rest: str = ""  # steps of its batch that are left


class Request(NamedTuple):
    driver: int
    awaited: bool  # whether the driver waits for the answer
    kind: str
    generation: int
    start: int
    until: int


class State(NamedTuple):
    generation: int
    position: int
    rows: tuple[int, ...]  # the source offsets of the rows
    letters: tuple[int, ...]  # the source offsets of the records of the topic that compaction keeps
    drivers: tuple[Driver, Driver]
    requests: tuple[Request, ...]
    batches: int
    starts: int


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        return State(0, 0, (), (), (Driver(), Driver()), (), self.c.batches, self.c.starts)

    def check(self, s: State) -> str | None:
        passed = range(s.position)
        bad = self.c.malformed & set(passed)
        good = set(passed) - bad
        if self.c.guarantee == "EO" and list(s.rows) != sorted(good):
            return f"position {s.position}, {DIFFERS} {s.rows}"
        if self.c.guarantee != "AMO" and not (bad <= set(s.letters) and good <= set(s.rows)):
            return f"position {s.position}, rows {s.rows}, dead letters {s.letters}: {LOST}"
        if self.c.guarantee == "AMO" and len(s.rows) != len(set(s.rows)):
            return f"rows {s.rows}: {TWICE}"
        counted = self.c.guarantee == "AMO" or not self.c.keyed
        if counted and len(s.letters) != len(set(s.letters)):
            return f"dead letters {s.letters}: {TWICE}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        for r in sorted(set(s.requests)):
            without = _without(s, r)
            yield f"{r}: is lost", _failed(without, r), None
            if r.awaited:  # it may still arrive
                yield f"{r}: times out", _failed(_with(without, r._replace(awaited=False)), r), None
            yield from self._arrives(without, r)
        for i, driver in enumerate(s.drivers):
            if not any(r.awaited and r.driver == i for r in s.requests):
                yield from self._driver(s, i, driver)
        for offset in () if self.c.own_keys else sorted(set(s.letters)):
            letters = tuple(o for o in s.letters if o != offset)
            yield f"another pipeline's dead letter of {offset} replaces this one's", s._replace(letters=letters), None

    def _driver(self, s: State, i: int, d: Driver) -> Iterator[Step]:
        """A driver may start again at any time: its process was killed, or its query failed."""
        name = f"D{i + 1}"
        if s.starts:
            started = s._replace(starts=s.starts - 1, generation=s.generation + 1)
            joined = Driver(s.generation + 1, s.position)
            yield f"{name}: joins and reads {s.position}", _with_driver(started, i, joined), None
        if d.rest:
            yield from self._sends(s, i, d)
        elif d.generation and s.batches:
            for until in range(d.offset + 1, self.c.n + 1):
                batch = d._replace(until=until, rest=self.c.steps)
                started = _with_driver(s._replace(batches=s.batches - 1), i, batch)
                yield f"{name}: begins [{d.offset}, {until})", started, None

    def _sends(self, s: State, i: int, d: Driver) -> Iterator[Step]:
        waits = self.c.acknowledged or d.rest[0] != LETTERS
        r = Request(i, waits, d.rest[0], d.generation, d.offset, d.until)
        yield f"D{i + 1}: sends {r}", _with(s if waits else _with_driver(s, i, _next(d)), r), None

    def _arrives(self, s: State, r: Request) -> Iterator[Step]:
        bad = tuple(o for o in range(r.start, r.until) if o in self.c.malformed)
        good = tuple(o for o in range(r.start, r.until) if o not in self.c.malformed)
        fenced = r.generation != s.generation
        moved = r.kind in (COMMIT, ADVANCE) and s.position != r.start
        if r.kind != LETTERS and (fenced or moved):
            yield f"{r}: is refused", _failed(s, r), None
            return
        if r.kind == LETTERS:
            after = s._replace(letters=(*s.letters, *bad))
        else:
            rows = () if r.kind == ADVANCE else good
            position = s.position if r.kind == ROWS else r.until
            after = s._replace(rows=(*s.rows, *rows), position=position)
        yield f"{r}: succeeds, outcome unknown", _failed(after, r), None
        if r.awaited:
            yield f"{r}: succeeds", _with_driver(after, r.driver, _next(after.drivers[r.driver])), None


def _next(d: Driver) -> Driver:
    """The driver after a step of its batch."""
    left = d.rest[1:]
    return d._replace(rest=left, offset=d.offset if left else d.until)


def _failed(s: State, r: Request) -> State:
    """The driver, if it waits for the answer, does not get it, or gets a refusal: its query fails."""
    return _with_driver(s, r.driver, Driver()) if r.awaited else s


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
    "letters-eo": safe("exactly-once: dead letters, then rows and position in one commit", steps="LC", batches=3),
    "letters-eo-large": safe("the same with four batches", slow=True, steps="LC"),
    "letters-alo": safe(
        "at-least-once: dead letters, rows, position", steps="LRA", guarantee="ALO", n=2, malformed=frozenset({0})
    ),
    "letters-alo-rows-first": safe(
        "at-least-once: rows, dead letters, position",
        steps="RLA",
        guarantee="ALO",
        n=2,
        malformed=frozenset({0}),
    ),
    "letters-amo": safe(
        "at-most-once: position, dead letters, rows", steps="ALR", guarantee="AMO", n=2, malformed=frozenset({0})
    ),
    # ---- negative controls
    "letters-eo-after": unsafe(LOST, "exactly-once: dead letters after the commit", steps="CL"),
    "letters-alo-after": unsafe(LOST, "at-least-once: dead letters after the position", steps="RAL", guarantee="ALO"),
    "letters-amo-before": unsafe(TWICE, "at-most-once: dead letters before the claim", steps="LAR", guarantee="AMO"),
    "letters-unacknowledged": unsafe(
        LOST, "the commit does not wait for the acknowledgement of the dead letters", steps="LC", acknowledged=False
    ),
    "letters-counted": unsafe(TWICE, "a reader counts records, and not keys", steps="LC", keyed=False),
    "letters-shared-keys": unsafe(
        LOST,
        "two pipelines with one source share the topic, and keys do not name the pipeline",
        steps="LC",
        own_keys=False,
    ),
}
