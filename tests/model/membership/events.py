"""What happens without a driver or a task: markers, time-outs, expiries, other programs' commits, recreated topics."""

from __future__ import annotations

from collections.abc import Iterator

from ..budgets import spend
from . import brokers as K
from .brokers import LANES, State, with_item
from .config import Budget, Cfg

Step = tuple[str, State | None, str | None]


def events(c: Cfg, s: State) -> Iterator[Step]:
    """The steps of brokers and of other programs."""
    b = s.budgets
    for tid, (_, state, parts) in enumerate(s.txns):
        if state in (K.PREPARE_COMMIT, K.PREPARE_ABORT):
            end = "commit" if state == K.PREPARE_COMMIT else "abort"
            for part, name in K.PARTITION.items():
                if parts & part:
                    yield f"marker {end} on {name}", K.write_marker(s, tid, part, c.reuse), None
        elif state == K.ONGOING and b[Budget.TIMEOUTS]:
            t = K.begin_abort(s, tid)._replace(budgets=spend(b, Budget.TIMEOUTS))
            yield f"transaction {tid} times out", t, None
    if b[Budget.SESSIONS] and s.member:
        yield "the member's session times out", s._replace(member=0, budgets=spend(b, Budget.SESSIONS)), None
    if b[Budget.LATE_JOINS]:
        t = s._replace(member=s.joins + 1, joins=s.joins + 1, budgets=spend(b, Budget.LATE_JOINS))
        yield f"a late JoinGroup: member {t.member}, which no driver is", t, None
    if b[Budget.EXPIRIES] and not s.member:
        remaining = tuple(log if K.pending(log) else () for log in s.offsets)
        if remaining != s.offsets:
            yield "all positions expire", s._replace(offsets=remaining, budgets=spend(b, Budget.EXPIRIES)), None  # type: ignore[arg-type]
    if b[Budget.MARKER_DELETIONS]:
        logs = tuple(tuple(e for e in log if e[0] != K.COMMITTED) for log in s.offsets)
        t = s._replace(offsets=logs, budgets=spend(b, Budget.MARKER_DELETIONS))  # type: ignore[arg-type]
        yield "the marker topic is deleted, and the positions with it", t, None
    if b[Budget.RECREATIONS]:
        t = s._replace(topic=s.topic + 1, budgets=spend(b, Budget.RECREATIONS))
        yield "the topic is recreated, its positions stay", t, None
        logs = tuple(tuple(e for e in log if e[0] != K.COMMITTED) for log in s.offsets)
        yield "the topic is recreated, its positions are deleted", t._replace(offsets=logs), None  # type: ignore[arg-type]
    yield from other_programs(c, s)


def other_programs(c: Cfg, s: State) -> Iterator[Step]:
    """Commits of lane 0 by another program: positions without a driver number."""
    b = s.budgets
    for value in range(c.n + 1):
        position = (value, 0, s.topic)
        if b[Budget.FOREIGN_PLAIN]:
            t, _ = K.offset_commit(s, ("C", K.FOREIGN, 0, K.NO_MEMBER, ((0, position),)))
            if t is not s:
                t = t._replace(budgets=spend(b, Budget.FOREIGN_PLAIN))
                yield f"another program commits {value}", t, None
        if b[Budget.FOREIGN_TXN]:
            log = (*s.offsets[0], (K.FOREIGN, 0, position))
            t = s._replace(offsets=with_item(s.offsets, 0, log), budgets=spend(b, Budget.FOREIGN_TXN))
            yield f"another program sends TxnOffsetCommit {value} without membership", t, None
    if any(e[0] == K.FOREIGN for e in s.offsets[0]):
        for commit in (True, False):
            t = K.set_offsets(s, LANES[0], K.end_log(s.offsets[0], K.FOREIGN, commit))
            yield f"the other program's transaction {'commits' if commit else 'aborts'}", t, None
