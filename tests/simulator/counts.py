"""What a reader gets: which records of a log are committed, and which ones are lost, duplicated or out of order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .state import Entry, Settings, State, log_of

Reading = tuple[tuple[int, int], ...]  # (offset, value), ...


class Counts(NamedTuple):
    """The counter of the page. Everything but `reported` and `out_of_order` counts the application's records."""

    sent: int
    delivered: int  # have an effect
    pending: int  # can still get one
    lost: int
    reported: int  # of the lost ones, those for which the application got an error
    duplicated: int  # further effects of records that have one
    out_of_order: int  # records whose first effect comes after that of a later record


def marker_of(log: Sequence[Entry], offset: int) -> str:
    """How the transaction of the record at this offset ends: commit, abort or open."""
    pid = log[offset].pid
    return next((e.kind for e in log[offset:] if e.pid == pid and e.kind != "record"), "open")


def readable(s: Settings, t: State) -> Reading:
    """The records that the consumer can read: below the high watermark and, in transactions, committed."""
    log, records = log_of(t), []
    for offset, e in enumerate(log[: t.high_watermark]):
        if e.kind != "record":
            continue
        end = marker_of(log[: t.high_watermark], offset) if s.transactions else "commit"
        if end == "open":  # the last stable offset: nothing behind it is read
            break
        if end == "commit":
            records.append((offset, e.value))
    return tuple(records)


def future(s: Settings, t: State) -> tuple[int, ...]:
    """The records that the consumer still has to process, if nothing fails any more."""
    log, c = log_of(t), t.consumer
    has_effect = c.phase == "processed" and s.commit != "transaction"
    in_memory = (c.held,) if c.held and not has_effect else ()
    unread = (
        e.value
        for offset, e in enumerate(log)
        if offset >= c.position and e.kind == "record" and not (s.transactions and marker_of(log, offset) == "abort")
    )
    return (*in_memory, *unread)


def inversions(values: Sequence[int]) -> int:
    """How many values come after a greater one, repetitions left out."""
    highest, count, known = 0, 0, set[int]()
    for v in values:
        if v not in known:
            count += v < highest
            known.add(v)
            highest = max(highest, v)
    return count


def counts(s: Settings, t: State) -> Counts:
    """The counter in a state. A record is lost if it has no effect and nothing can give it one."""
    sent = range(1, len(t.outcomes) + 1)
    effects = (*t.output, *future(s, t))
    open_values = {r.value for r in (*t.requests, *t.zombie_requests)} | set(t.transaction)
    if t.zombie and (s.commit, t.zombie.phase) == ("before", "committed"):
        open_values.add(t.zombie.held)
    lost = [v for v in sent if v not in effects and v not in open_values]
    return Counts(
        sent=len(sent),
        delivered=len(set(t.output)),
        pending=len(sent) - len(set(t.output)) - len(lost),
        lost=len(lost),
        reported=sum(t.outcomes[v - 1] == "failed" for v in lost),
        duplicated=len(effects) - len(set(effects)),
        out_of_order=inversions(effects),
    )
