"""What a run of the demo came to, and how it is told: JSON for machines, notes for people. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackwright_stream.jobspec import Guarantee

_WINDOW_S = 5.0


@dataclass(frozen=True)
class Delivered:
    """A run before it is audited. seconds: from the first record to the last, without the time that it took to resume after kills."""

    kills: int
    records_per_second: float
    resume_seconds: tuple[float, ...]


@dataclass(frozen=True)
class Run:
    """One guarantee. expected: how many of the records sent pass the filter and are due in the sink; the counts are the audit's."""

    guarantee: Guarantee
    sent: int
    expected: int
    delivered: int
    lost: int
    duplicated: int
    kills: int
    records_per_second: float
    resume_seconds: tuple[float, ...]
    guarantee_held: bool
    remarks: tuple[str, ...] = ()


def run(guarantee: Guarantee, done: Delivered, audit: Mapping[str, Any]) -> Run:
    """A run and its audit (the JSON of ackwright_stream.audit) as one."""
    wrong = {name: audit[name] for name in ("unexpected", "outOfOrder") if audit[name]}
    return Run(
        guarantee=guarantee,
        sent=audit["sent"],
        expected=audit["expected"],
        delivered=audit["delivered"],
        lost=audit["lost"],
        duplicated=audit["duplicated"],
        kills=done.kills,
        records_per_second=done.records_per_second,
        resume_seconds=done.resume_seconds,
        guarantee_held=audit["guaranteeHeld"],
        remarks=(*(f"{count} records {name}" for name, count in wrong.items()), *audit["notes"]),
    )


def document(runs: Sequence[Run]) -> dict[str, Any]:
    """The demo's JSON."""
    return {
        "runs": [
            {
                "guarantee": str(r.guarantee),
                "sent": r.sent,
                "delivered": r.delivered,
                "lost": r.lost,
                "duplicated": r.duplicated,
                "kills": r.kills,
                "recordsPerSecond": round(r.records_per_second, 1),
                "resumeSeconds": [round(s, 2) for s in r.resume_seconds],
                "guaranteeHeld": r.guarantee_held,
            }
            for r in runs
        ]
    }


def notes(runs: Sequence[Run]) -> list[str]:
    """What has to be said about the numbers, above all where they prove less than they seem to."""
    said = [f"{r.guarantee}: {remark}" for r in runs for remark in r.remarks]
    for r in runs:
        harm, count = {
            Guarantee.AT_MOST_ONCE: ("lost", r.lost),
            Guarantee.AT_LEAST_ONCE: ("duplicated", r.duplicated),
            Guarantee.EXACTLY_ONCE: ("", 1),
        }[r.guarantee]
        if count == 0:
            why = (
                "nothing was killed"
                if r.kills == 0
                else "no kill fell where it may; another --seed, or --fail driver, will show it"
            )
            said.append(f"{r.guarantee} {harm} nothing in this run, which it does not promise: {why}")
        if r.guarantee is Guarantee.EXACTLY_ONCE and r.kills == 0:
            said.append(f"{r.guarantee}: nothing was killed, so this run proves little")
    return said


def resumed(before: Mapping[int, int], now: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether every lane has moved beyond where it was, those aside that had nothing left to deliver."""
    return all(now.get(p, 0) > before.get(p, 0) or before.get(p, 0) >= end for p, end in ends.items())


class Meter:
    """Records per second over the last seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def add(self, now: float, passed: int) -> float:
        """now: seconds; passed: records so far. Returns the rate."""
        self._seen.append((now, passed))
        while self._seen[0][0] < now - _WINDOW_S:
            self._seen.popleft()
        (then, before) = self._seen[0]
        return (passed - before) / (now - then) if now > then else 0.0
