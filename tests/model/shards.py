"""A model of the election of an operator with shards, while the number of shards changes.

Each shard has a Lease. Two candidates of the same number of shards compete for one Lease, or lead different namespaces.
Candidates of different numbers divide the namespaces differently, so none of one number may lead while one of another
number does, although they hold different Leases.

Time is not in the model, only what the Lease's times ensure: a Lease counts as stale only after its holder's writes
have ended, since its holder's last renewal is too old by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .variants import Variant

BOTH_LEAD = "lead the same namespace"
STANDBY, READ, HOLDER, LEADER = "stands by", "has read", "holds", "leads"


@dataclass(frozen=True)
class Cfg:
    """The parameters of one variant."""

    # Of each candidate: the number of shards that it was started with, and its Lease.
    candidates: tuple[tuple[int, int], ...] = ((1, 0), (1, 0), (2, 0), (2, 1))
    reads_before: bool = True  # the Leases of other numbers, before it takes its own
    reads_after: bool = True  # it has taken its own, before it leads
    clears: bool = True  # a stale Lease of another number, so that its holder cannot renew it
    writes: int = 5  # the budget


class Lease(NamedTuple):
    version: int = 0
    holder: int | None = None
    shards: int = 1  # of the last holder


class Candidate(NamedTuple):
    mode: str = STANDBY
    version: int = 0  # of its Lease, as it has last read or written it
    is_recent: bool = False  # its last write of the Lease
    others: tuple[tuple[int, int], ...] = ()  # Leases of other numbers that it is to clear, with their versions


class State(NamedTuple):
    leases: tuple[Lease, ...]
    candidates: tuple[Candidate, ...]
    writes: int


Step = tuple[str, State | None, str | None]


class Model:
    """The transitions of one variant."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg

    def initial(self) -> State:
        leases = tuple(Lease() for _ in {lease for _, lease in self.c.candidates})
        return State(leases, tuple(Candidate() for _ in self.c.candidates), self.c.writes)

    def check(self, s: State) -> str | None:
        leaders = [i for i, c in enumerate(s.candidates) if c.mode == LEADER and c.is_recent]
        for i in leaders:
            for j in leaders:
                (shards, lease), (other_shards, other_lease) = self.c.candidates[i], self.c.candidates[j]
                if i < j and (shards != other_shards or lease == other_lease):
                    return f"C{i} and C{j} {BOTH_LEAD}"
        return None

    def successors(self, s: State) -> Iterator[Step]:
        for i, c in enumerate(s.candidates):
            if c.is_recent:
                yield f"C{i}: its renewal grows old", _with(s, i, c._replace(is_recent=False)), None
            if c.others:
                yield from self._clears(s, i, c)
            elif c.mode in (STANDBY, READ):
                yield from self._contends(s, i, c)
            else:
                yield from self._holds(s, i, c)

    def _contends(self, s: State, i: int, c: Candidate) -> Iterator[Step]:
        shards, lease = self.c.candidates[i]
        if c.mode == READ:
            yield f"C{i}: takes Lease {lease}", self._writes(s, i, lease, c._replace(mode=HOLDER), shards), None
            return
        if self._is_held(s, lease, i):
            return
        held, stale = self._others(s, i) if self.c.reads_before else ((), ())
        if not held:
            version = s.leases[lease].version
            read = Candidate(READ, version, False, stale if self.c.clears else ())
            yield f"C{i}: reads, {stale} are stale", _with(s, i, read), None

    def _holds(self, s: State, i: int, c: Candidate) -> Iterator[Step]:
        shards, lease = self.c.candidates[i]
        if c.mode == HOLDER:
            held, stale = self._others(s, i) if self.c.reads_after else ((), ())
            if held:
                yield f"C{i}: sees {held}, and releases", self._writes(s, i, lease, Candidate(), None), None
            elif stale and self.c.clears:
                yield f"C{i}: sees that {stale} are stale", _with(s, i, c._replace(others=stale)), None
            else:
                yield f"C{i}: leads", _with(s, i, c._replace(mode=LEADER)), None
        yield f"C{i}: renews", self._writes(s, i, lease, c, shards), None
        yield f"C{i}: stops", self._writes(s, i, lease, Candidate(), None), None

    def _writes(self, s: State, i: int, lease: int, after: Candidate, shards: int | None) -> State | None:
        """A write of the candidate's Lease with the version that it knows; shards: None to release it."""
        present, known = s.leases[lease], s.candidates[i].version
        if not s.writes:
            return s
        if present.version != known:
            return _with(s, i, Candidate())
        new = Lease(known + 1, None if shards is None else i, present.shards if shards is None else shards)
        if shards is not None:
            after = after._replace(version=new.version, is_recent=True)
        return _with(_with_lease(s, lease, new), i, after)

    def _clears(self, s: State, i: int, c: Candidate) -> Iterator[Step]:
        (lease, version), *rest = c.others
        if not s.writes:
            return
        if s.leases[lease].version != version:
            yield f"C{i}: Lease {lease} has changed", _with(s, i, Candidate()), None
            return
        cleared = _with_lease(s, lease, Lease(version + 1, None, s.leases[lease].shards))
        yield f"C{i}: clears Lease {lease}", _with(cleared, i, c._replace(others=tuple(rest))), None

    def _is_held(self, s: State, lease: int, i: int) -> bool:
        """Whether another candidate holds the Lease, and has renewed it lately."""
        holder = s.leases[lease].holder
        return holder is not None and holder != i and s.candidates[holder].is_recent

    def _others(self, s: State, i: int) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """The Leases of other numbers, without the candidate's, that are held, and those that are stale, with their
        versions.
        """
        shards, own = self.c.candidates[i]
        other = [(n, x) for n, x in enumerate(s.leases) if n != own and x.holder is not None and x.shards != shards]
        held = tuple(n for n, x in other if x.holder is not None and s.candidates[x.holder].is_recent)
        return held, tuple((n, x.version) for n, x in other if n not in held)


def _with(s: State, i: int, c: Candidate) -> State:
    return s._replace(candidates=(*s.candidates[:i], c, *s.candidates[i + 1 :]))


def _with_lease(s: State, lease: int, new: Lease) -> State:
    return s._replace(leases=(*s.leases[:lease], new, *s.leases[lease + 1 :]), writes=s.writes - 1)


def safe(about: str, *, slow: bool = False, **cfg: Any) -> Variant:
    """A variant without a violation."""
    return Variant(about, Cfg(**cfg), None, slow, Model)


def unsafe(about: str, **cfg: Any) -> Variant:
    """A variant that must end with two leaders of one namespace."""
    return Variant(about, Cfg(**cfg), BOTH_LEAD, False, Model)


VARIANTS = {
    "shards": safe("two candidates of one shard, and one of each of two"),
    "shards-large": safe("the same with eight writes", slow=True, writes=8),
    "shards-three": safe("two shards become three", slow=True, candidates=((2, 0), (2, 1), (3, 0), (3, 2)), writes=7),
    "shards-unseen": unsafe("candidates ignore the Leases of other numbers", reads_before=False, reads_after=False),
    "shards-before": unsafe("they read the others only before they take their own Lease", reads_after=False),
    "shards-after": safe(
        "they read the others only after they have taken their own Lease", slow=True, reads_before=False
    ),
    "shards-uncleared": unsafe("they leave stale Leases as they are, and a holder renews its own", clears=False),
}
