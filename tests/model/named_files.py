"""A model of a sink whose tasks create files: a file is named by the first offset of its range, and created if absent.

One lane, two drivers. A file has the rows of [start, until), its `until`, and its driver's number. The position is the
`until` of the last file of the chain, which begins where a driver has settled the lane. A driver joins (raises the
generation), reads, settles, and runs tasks. A task reads the position, decides, and sends a request to create the file
at its start. The request may arrive late, also after its driver has stopped waiting, and its answer may be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from .variants import DIFFERS, DUPLICATED, Variant

IDLE, JOINED, READ, RUNNING = "idle", "joined", "read", "running"


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    n: int = 3  # source offsets 0..n-1
    named_by_range: bool = False  # a file's name has its `until`, too
    if_absent: bool = True  # False: a request replaces a file of the same name
    compares_generation: bool = True  # before a task sends its request, and when a driver settles
    reads: bool = True  # a task reads the position and decides; False: it sends its request in any case
    assumes: bool = False  # after an unknown outcome the driver takes the range for delivered
    removes: bool = False  # somebody removes the oldest file
    removes_old_files_only: bool = False  # and only after all requests of its time have arrived or are lost
    batches: int = 4  # the budgets: number of events in one run
    starts: int = 3


class Position(NamedTuple):
    offset: int
    driver: int


class File(NamedTuple):
    start: int
    until: int
    driver: int


class Driver(NamedTuple):
    mode: str = IDLE
    generation: int = 0
    number: int = 0
    offset: int = 0  # where it reads the source


class Request(NamedTuple):
    """A file that a task wants to create."""

    driver: int
    awaited: bool  # whether the task waits for the answer
    file: File


class State(NamedTuple):
    generation: int
    settled: Position
    files: tuple[File, ...]  # that are there
    removed: tuple[File, ...]
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
        return State(0, Position(0, 0), (), (), (Driver(), Driver()), (), self.c.batches, self.c.starts)

    def check(self, s: State) -> str | None:
        rows = [offset for f in sorted((*s.files, *s.removed)) for offset in range(f.start, f.until)]
        if any(a >= b for a, b in pairwise(rows)):
            return f"committed output {rows}: {DUPLICATED}"
        last = max((f.until for f in (*s.files, *s.removed)), default=0)
        if rows != list(range(last)):
            return f"position {last}, {DIFFERS} {rows}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        for r in sorted(set(s.requests)):
            without = _without(s, r)
            yield f"{r}: is lost", self._unanswered(without, r), None
            if r.awaited:  # it may still arrive
                yield f"{r}: times out", self._unanswered(_with(without, r._replace(awaited=False)), r), None
            yield from self._arrives(without, r)
        for i, driver in enumerate(s.drivers):
            if not any(r.awaited and r.driver == i for r in s.requests):
                yield from self._driver(s, i, driver)
        late = s.requests and self.c.removes_old_files_only
        if self.c.removes and len(s.files) > 1 and not late:
            first = min(s.files)
            files = tuple(f for f in s.files if f != first)
            yield f"{first} is removed", s._replace(files=files, removed=(*s.removed, first)), None

    def _driver(self, s: State, i: int, d: Driver) -> Iterator[Step]:
        """A driver may start again at any time: its process was killed, or its query failed."""
        name = f"D{i + 1}"
        if s.starts:
            joined = Driver(JOINED, s.generation + 1)
            after = _with_driver(s, i, joined)._replace(starts=s.starts - 1, generation=s.generation + 1)
            yield f"{name}: joins", after, None
        if d.mode == JOINED:
            at = self._position(s)
            read = d._replace(mode=READ, number=max(at.driver, s.settled.driver) + 1, offset=at.offset)
            yield f"{name}: reads {at}", _with_driver(s, i, read), None
        fenced = self.c.compares_generation and s.generation != d.generation
        if d.mode == READ and fenced:
            yield f"{name}: is superseded", _with_driver(s, i, Driver()), None
        elif d.mode == READ:
            after = s._replace(settled=Position(d.offset, d.number))
            yield f"{name}: settles", _with_driver(after, i, d._replace(mode=RUNNING)), None
            yield f"{name}: settles, outcome unknown", _with_driver(after, i, Driver()), None
        if d.mode == RUNNING and s.batches:
            if fenced:
                yield f"{name}: is superseded", _with_driver(s, i, Driver()), None
                return
            for until in range(d.offset + 1, self.c.n + 1):
                yield from self._task(s._replace(batches=s.batches - 1), i, File(d.offset, until, d.number))

    def _task(self, s: State, i: int, file: File) -> Iterator[Step]:
        name, at = f"D{i + 1}: a task of [{file.start}, {file.until})", self._position(s)
        if self.c.reads and at.driver == file.driver and at.offset >= file.until:
            yield f"{name} skips it", _with_driver(s, i, s.drivers[i]._replace(offset=file.until)), None
        elif self.c.reads and at != (file.start, file.driver):
            yield f"{name}: conflict", _with_driver(s, i, Driver()), None
        else:
            yield f"{name} sends a request", _with(s, Request(i, True, file)), None

    def _position(self, s: State) -> Position:
        """The end of the chain: from where a driver has settled the lane, of a later file the last one."""
        later = [f for f in s.files if f.start >= s.settled.offset]
        last = max(later, default=None)
        return Position(last.until, last.driver) if last else s.settled

    def _arrives(self, s: State, r: Request) -> Iterator[Step]:
        same = [
            f for f in s.files if f.start == r.file.start and (not self.c.named_by_range or f.until == r.file.until)
        ]
        if same and self.c.if_absent:
            after = _with_driver(s, r.driver, Driver()) if r.awaited else s
            yield f"{r}: the file exists", after, None
            return
        after = s._replace(files=tuple(sorted((*(f for f in s.files if f not in same), r.file))))
        yield f"{r}: creates it, outcome unknown", self._unanswered(after, r), None
        if r.awaited:
            d = s.drivers[r.driver]._replace(offset=r.file.until)
            yield f"{r}: creates it", _with_driver(after, r.driver, d), None

    def _unanswered(self, s: State, r: Request) -> State:
        """The task, if it waits, does not know the outcome: it runs again, and reads the position."""
        if not r.awaited or not self.c.assumes:
            return s
        return _with_driver(s, r.driver, s.drivers[r.driver]._replace(offset=r.file.until))


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
    "files": safe("two drivers that start three times, three batches with any boundaries", batches=3),
    "files-large": safe("the same, with four batches", slow=True),
    "files-generation": safe(
        "generations are never compared: a zombie's file has right rows, so it only delays its successor",
        slow=True,
        n=2,
        batches=3,
        compares_generation=False,
    ),
    "files-blind": safe(
        "tasks do not read the position: their driver has read it, and a request at an older one finds the file there",
        batches=3,
        reads=False,
    ),
    "files-removed": safe(
        "the oldest file is removed once no request of its time is under way",
        slow=True,
        batches=3,
        removes=True,
        removes_old_files_only=True,
    ),
    "files-range": unsafe(
        DUPLICATED, "files are named by start and end: two boundaries, two files", named_by_range=True
    ),
    "files-replace": unsafe(DIFFERS, "a request replaces a file of the same name", if_absent=False),
    "files-assume": unsafe(
        DIFFERS,
        "after an unknown outcome the driver continues behind the range, and tasks do not read",
        assumes=True,
        reads=False,
    ),
    "files-removed-early": unsafe(
        DUPLICATED, "a file is removed while the request of a zombie for the same name is under way", removes=True
    ),
}
