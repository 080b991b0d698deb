"""The results of the demo: JSON for programs, notes for people. Does no I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ackwright.local.demo.pipelines import Pipeline, Sink
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.reports import Verdict

_RATE_WINDOW = 5.0  # seconds


@dataclass(frozen=True)
class Counts:
    """What the demo's own data have, known without Kafka and without the pipeline's transform."""

    sent: int  # records that the brokers have acknowledged
    disrupted: int  # of them, cancelled or late flights, which the pipelines of disrupted flights have to deliver
    groups: int = 0  # airports, airlines and days, of which the pipeline of counts has to deliver each

    def expected(self, pipeline: Pipeline) -> int:
        """How many records, or last records of a key, a pipeline has to deliver."""
        return self.groups if pipeline is Pipeline.COUNTS else self.disrupted


@dataclass(frozen=True)
class Measurements:
    """What is measured while one pipeline runs."""

    kills: int
    records_per_second: float  # from the first record to the last, without the times to resume
    resume_seconds: tuple[float, ...]  # one per kill


@dataclass(frozen=True)
class RunResult:
    """The result of one guarantee."""

    guarantee: Guarantee
    sent: int  # as the producer counted
    expected: int  # of them, those that pass the filter, or the groups to count, as the producer counted
    # By the audit:
    delivered: int
    lost: int
    duplicated: int
    kills: int
    records_per_second: float
    resume_seconds: tuple[float, ...]
    verdict: Verdict
    remarks: tuple[str, ...] = ()


def result(
    guarantee: Guarantee,
    measured: Measurements,
    audit: Report,
    counts: Counts,
    pipeline: Pipeline = Pipeline.DISRUPTED,
) -> RunResult:
    """Combines the measurements of a run with its audit.

    counts: of the records that were produced. An audit that has other ones proves nothing.
    """
    faults = (
        (audit.unexpected, "unexpected"),
        (audit.out_of_order, "out-of-order"),
        (audit.misplaced, "misplaced"),
        (audit.missing, "missing"),
        (audit.unjudged, "unjudged"),
    )
    own, audits = (counts.sent, counts.expected(pipeline)), (audit.sent, audit.expected)
    disagreements = [
        f"{name}: the producer counted {mine:,} and the audit {other:,}"
        for name, mine, other in zip(("sent", "expected"), own, audits, strict=True)
        if mine != other
    ]
    return RunResult(
        guarantee=guarantee,
        sent=counts.sent,
        expected=counts.expected(pipeline),
        delivered=audit.delivered,
        lost=audit.lost,
        duplicated=audit.duplicated,
        kills=measured.kills,
        records_per_second=measured.records_per_second,
        resume_seconds=measured.resume_seconds,
        verdict=Verdict.worst([audit.verdict, *([Verdict.UNPROVEN] if disagreements else [])]),
        remarks=(
            *disagreements,
            *(f"{count} {name} record{'s' if count != 1 else ''}" for count, name in faults if count),
            *audit.doubts,
            *audit.notes,
        ),
    )


def document(results: Sequence[RunResult], sink: Sink, pipeline: Pipeline = Pipeline.DISRUPTED) -> dict[str, Any]:
    """The demo's JSON output."""
    return {
        "pipeline": str(pipeline),
        "sink": str(sink),
        "runs": [
            {
                "guarantee": str(r.guarantee),
                "sent": r.sent,
                "expected": r.expected,
                "delivered": r.delivered,
                "lost": r.lost,
                "duplicated": r.duplicated,
                "kills": r.kills,
                "recordsPerSecond": round(r.records_per_second, 1),
                "resumeSeconds": [round(s, 2) for s in r.resume_seconds],
                "guaranteeHeld": r.verdict is Verdict.HELD,
                "verdict": str(r.verdict),
            }
            for r in results
        ],
    }


def notes(results: Sequence[RunResult]) -> list[str]:
    """Remarks of the audits, and a note for each run that proves less than its numbers suggest."""
    lines = [f"{r.guarantee}: {remark}" for r in results for remark in r.remarks]
    for r in results:
        allowed_fault, count = {
            Guarantee.AT_MOST_ONCE: ("lost", r.lost),
            Guarantee.AT_LEAST_ONCE: ("duplicated", r.duplicated),
            Guarantee.EXACTLY_ONCE: ("", 1),
        }[r.guarantee]
        if count == 0:
            cause = (
                "nothing was killed"
                if r.kills == 0
                else "no kill hit the moment that shows it; try another --seed, or --fail driver"
            )
            lines.append(f"{r.guarantee} {allowed_fault} nothing in this run, although it may: {cause}")
        if r.guarantee is Guarantee.EXACTLY_ONCE and r.kills == 0:
            lines.append(f"{r.guarantee}: nothing was killed, so this run proves little")
    return lines


def has_resumed(before: Mapping[int, int], now: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether every partition that had records left has a higher position than before."""
    return all(now.get(p, 0) > before.get(p, 0) or before.get(p, 0) >= end for p, end in ends.items())


class RateMeter:
    """Records per second over the last five seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, records: int) -> float:
        """Adds a sample and returns the rate. now: seconds; records: total so far."""
        self._samples.append((now, records))
        while self._samples[0][0] < now - _RATE_WINDOW:
            self._samples.popleft()
        (first_time, first_records) = self._samples[0]
        return (records - first_records) / (now - first_time) if now > first_time else 0.0
