"""The invariants of every reachable state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from . import brokers as K
from .brokers import LANES, State
from .config import Cfg


class Invariants:
    """Checks the states of one variant, and caches the verdict on each state of a lane."""

    def __init__(self, cfg: Cfg) -> None:
        self.c = cfg
        self.verdicts: dict[Any, str | None] = {}

    def check(self, s: State) -> str | None:
        """The violation in this state, or None."""
        calm = not K.completing(s)
        for lane in LANES:
            passed = max((d.start[lane] for d in s.drivers if d.mode in "IBTD"), default=0)
            key = (s.offsets[lane], s.logs[lane], s.base[lane] or 0, s.topic, calm, passed)
            if key not in self.verdicts:
                self.verdicts[key] = self.check_lane(key)
            violation = self.verdicts[key] or self.pending(s, lane)
            if violation:
                return f"lane {lane}: {violation}"
        return None

    def check_lane(self, key: tuple[K.Log, K.Log, int, int, bool, int]) -> str | None:
        offsets, log, start, topic, calm, passed = key
        rows = [e for e in log if e[0] < 0]
        out = [o for e in rows for o in range(e[2], e[3])]
        position = K.committed(offsets)
        guarantee = self.c.guarantee
        if guarantee == "AMO":
            return f"processed {out}: more than once" if len(out) != len(set(out)) else None
        transactional = [(e[4], o) for e in rows if e[0] == K.COMMITTED for o in range(e[2], e[3])]
        if guarantee == "MIX" and len(transactional) != len(set(transactional)):
            return f"transactional output {transactional}: duplicated"
        if guarantee == "EO" and any(x >= y for x, y in pairwise(transactional)):
            return f"committed output (topic id, offset) {transactional}: duplicated or out of order"
        if self.c.exact_topic and any(e[4] != e[5] for e in rows):
            return "rows of a recreated topic count for a position of the earlier one"
        if not calm:
            return None
        missing = sorted(set(range(start, passed)) - set(out))
        if missing:
            return f"a driver has passed over {missing}, which are not in the output"
        if position is None or not position[1] or position[2] != topic:
            return None  # moved by another program or of an earlier topic: the next start halts
        expected = list(range(start, position[0]))
        if guarantee == "EO" and [o for t, o in transactional if t == topic] != expected:
            return f"position {position[0]}, but the committed output is {transactional}"
        return None if set(expected) <= set(out) else f"position {position[0]}, but only {sorted(set(out))}: lost"

    def pending(self, s: State, lane: int) -> str | None:
        """Whether a pending offset or an open batch has no transaction that will end it."""
        for log, part in ((s.offsets[lane], K.GROUP), (s.records[lane], K.LANES_TOPIC), (s.logs[lane], 1 << lane)):
            for e in log:
                if 0 <= e[0] < K.FOREIGN and not (s.txns[e[0]][1] and s.txns[e[0]][2] & part):
                    return "a pending offset or an open batch that nothing will end"
        return None

    def backwards(self, s: State, t: State) -> str | None:
        """The violation if a commit of this program moves a position backwards."""
        if s.offsets is t.offsets or not self.c.monotone:
            return None
        for lane in LANES:
            old, new = K.committed(s.offsets[lane]), K.committed(t.offsets[lane])
            if old and new and old[1] and new[1] and old[2] == new[2] and new[0] < old[0]:
                return f"lane {lane}: position moves backwards: {old[0]} -> {new[0]}"
        return None
