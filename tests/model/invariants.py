"""The invariants of every reachable state: the three guarantees, and that no reader or driver hangs."""

from __future__ import annotations

from itertools import pairwise

from . import brokers as K
from .brokers import Lane, position, unstable
from .config import Cfg

NEVER_ENDED = "read_committed readers hang"


class Invariants:
    """Checks the lanes of one variant, and caches the verdict on each state of a lane."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg
        self.verdicts: dict[Lane, str | None] = {}

    def check(self, lanes: tuple[Lane, ...], a_driver_is_done: bool) -> str | None:
        """The violation in this state, or None."""
        for lane in lanes:
            if lane not in self.verdicts:
                self.verdicts[lane] = self.check_lane(lane)
            violation = self.verdicts[lane]
            if violation:
                return violation
            if self.c.guarantee == "EO" and a_driver_is_done and not K.completing(lane):
                out = self.committed(lane)
                if out != self.rows(lane[K.BASE], self.c.n):
                    return f"a driver has finished, but the committed output is {out}"
        return None

    def rows(self, a: int, b: int) -> list[int]:
        return [o for o in range(a, b) if o not in self.c.filtered]

    def committed(self, lane: Lane) -> list[int]:
        """The source offsets that a read_committed reader gets, in the order of the log; an open batch delays it."""
        return [o for e in lane[K.LOG] if not e[3] for o in self.rows(e[1], e[2])]

    def check_lane(self, lane: Lane) -> str | None:
        settled = not K.completing(lane)
        if self.c.check_records and settled and K.recorded(lane) != (lane[K.BASE] is not None):
            return f"first position {lane[K.BASE]}, but recorded: {K.recorded(lane)}"
        if self.c.guarantee == "EO":
            return self.exactly_once(lane) or (self.recovers(lane) if settled else None)
        violation = self.at_most_once(lane) if self.c.guarantee == "AMO" else self.at_least_once(lane, settled)
        return violation or (self.readable(lane) if settled else None)

    def exactly_once(self, lane: Lane) -> str | None:
        p, out = position(lane), self.committed(lane)
        if any(x >= y for x, y in pairwise(out)):
            return f"committed output {out}: duplicated or out of order"
        if not K.completing(lane) and p is not None and out != self.rows(lane[K.BASE], p):
            return f"position {p}, but the committed output is {out}"
        return None

    def at_most_once(self, lane: Lane) -> str | None:
        out = self.committed(lane)
        return f"processed {out}: more than once" if len(out) != len(set(out)) else None

    def at_least_once(self, lane: Lane, settled: bool) -> str | None:
        p, out = position(lane), self.committed(lane)
        if self.c.guarantee == "MIX":
            transactional = [o for e in lane[K.LOG] if e[0] and not e[3] for o in self.rows(e[1], e[2])]
            if len(transactional) != len(set(transactional)):
                return f"transactional output {transactional}: duplicated"
        if settled and p is not None and not set(self.rows(lane[K.BASE], p)) <= set(out):
            return f"position {p}, but only {sorted(set(out))} processed: lost"
        return None

    def after_fencing(self, lane: Lane) -> Lane:
        if lane[K.STATE] == K.ONGOING:
            lane = K.begin_abort(lane)
            for part in K.PARTITION:
                if lane[K.MARKERS] & part:
                    lane = K.write_marker(lane, part, False)
        return lane

    def readable(self, lane: Lane) -> str | None:
        if unstable(self.after_fencing(lane)):
            return "a pending offset that nothing will end: positions can no longer be read"
        return None

    def recovers(self, lane: Lane) -> str | None:
        """The violation after a recovery: all actors end now, and a new driver continues alone."""
        x = self.after_fencing(lane)
        p = position(x)
        finished = p is not None and p >= self.c.n
        if unstable(x):
            return self.readable(lane)
        if any(e[3] and e[0] != x[K.PID] for log, _ in K.LOGS.values() for e in x[log]):
            return f"an open batch of a retired producer id: {NEVER_ENDED}"
        if finished and any(e[3] for e in x[K.LOG]):
            return f"an open batch that nothing will end: {NEVER_ENDED}"
        if p is None or finished:
            return None
        # The next marker also ends an open batch.
        out = [o for e in x[K.LOG] for o in self.rows(e[1], e[2])] + self.rows(p, self.c.n)
        return None if out == self.rows(x[K.BASE], self.c.n) else f"after a recovery the committed output is {out}"


def backwards(lane: Lane, lane2: Lane, cfg: Cfg) -> str | None:
    """The position must never move backwards."""
    if lane2[K.OFFSETS] is lane[K.OFFSETS] or not cfg.monotone:
        return None
    old, new = position(lane), position(lane2)
    if old is not None and new is not None and new < old:
        return f"position moves backwards: {old} -> {new}"
    return None
