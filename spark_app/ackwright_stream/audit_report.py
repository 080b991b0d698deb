"""The result of an audit: its counts, its verdict, and its forms for programs and for people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ackwright_stream.jobspec import Guarantee
from ackwright_stream.reports import Verdict


@dataclass(frozen=True)
class Offending:
    """A record that breaks, or may break, a guarantee."""

    kind: str  # lost | missing | duplicated | unexpected | misplaced | unjudged | outOfOrder
    topic: str
    key: str | None
    value: str | None
    count: int  # of equal records with this fault
    where: str  # partition@offset of one of them in the sink; of a lost or missing one the source partition


@dataclass(frozen=True)
class Comparison:
    """Counts of records or rows, and examples of what is wrong. Of a table with a key, counts of keys."""

    expected: int  # that must be in the sink, because the positions have passed them
    delivered: int  # that are in the sink
    lost: int
    duplicated: int
    unexpected: int
    offending: tuple[Offending, ...]
    metrics: Mapping[str, Mapping[str, int]]  # that Spark observed while it read, by name and field
    missing: int = 0  # not in the sink, which may have lost them since
    misplaced: int = 0  # in another partition of the sink than the one that they belong to
    # In the sink, and perhaps of source records that no longer exist, or placed before partitions were added.
    unjudged: int = 0
    out_of_order: int = 0
    # Expected rows of records that the positions had not passed, and that the sink does not take.
    refused_late: int = 0
    dead_letters: int = 0  # that are where the pipeline writes them

    def with_letters(self, letters: Comparison) -> Comparison:
        """The same, with the faults of dead letters. Their number is no number of output."""
        kinds = ("lost", "duplicated", "unexpected", "missing", "misplaced", "unjudged", "out_of_order")
        faults = {kind: getattr(self, kind) + getattr(letters, kind) for kind in kinds}
        offending = (*self.offending, *letters.offending)
        return replace(self, **faults, offending=offending, dead_letters=letters.delivered)

    def without_surplus(self) -> Comparison:
        """The same, with duplicated and unexpected records as unjudged ones."""
        surplus = ("duplicated", "unexpected")
        offending = tuple(replace(o, kind="unjudged") if o.kind in surplus else o for o in self.offending)
        unjudged = self.unjudged + self.duplicated + self.unexpected
        return replace(self, duplicated=0, unexpected=0, unjudged=unjudged, offending=offending)

    def without_order(self) -> Comparison:
        """The same, for output that has no order."""
        return replace(self, out_of_order=0, offending=tuple(o for o in self.offending if o.kind != "outOfOrder"))

    def not_judged(self) -> Comparison:
        """The same, with all records in the sink as unjudged ones, and no fault."""
        return Comparison(self.expected, self.delivered, 0, 0, 0, (), self.metrics, unjudged=self.delivered)


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    guarantee: Guarantee
    sent: int  # source records that the positions have passed, as the audit's reader (Spark) reads them
    counted: int  # the same records, counted by another client
    expected: int  # the transform's output for them
    delivered: int  # records in the sink
    lost: int
    missing: int  # not in the sink, which may have removed them
    duplicated: int
    unexpected: int
    misplaced: int  # in another partition of the sink than the declared one
    out_of_order: int  # behind a later record of the same source partition and sink partition
    malformed: int  # of `sent`, those that do not parse
    dead_letters: (
        int  # of the pipeline, where the spec says; as many as malformed ones, if that is what becomes of them
    )
    unjudged: (
        int  # in the sink, and may be right: of source records that are gone, or placed before partitions were added
    )
    lanes: Mapping[str, Mapping[str, int]]  # by source partition: where counting begins (from), and the position
    unjudged_lanes: tuple[str, ...]  # source partitions of which not all records are there to be compared
    offending: tuple[Offending, ...]
    doubts: tuple[str, ...]  # what keeps records from being judged
    notes: tuple[str, ...]  # other limits of the result

    @property
    def verdict(self) -> Verdict:
        """BROKEN if a fault occurred that the guarantee excludes, else UNPROVEN if anything could not be judged.

        At-most-once allows lost and outOfOrder; at-least-once allows duplicated and, as a consequence of it,
        outOfOrder. None allows a record in another partition than the declared one.
        """
        match self.guarantee:
            case Guarantee.EXACTLY_ONCE:
                faults = self.lost + self.duplicated + self.out_of_order
            case Guarantee.AT_LEAST_ONCE:
                faults = self.lost
            case Guarantee.AT_MOST_ONCE:
                faults = self.duplicated
        if faults + self.unexpected + self.misplaced:
            return Verdict.BROKEN
        return Verdict.UNPROVEN if self.doubts or self.missing or self.unjudged else Verdict.HELD

    @property
    def headline(self) -> str:
        """The verdict as people read it. Over no records nothing has failed, and nothing is proven either."""
        if self.sent or self.counted or self.expected or self.delivered or self.dead_letters:
            return self.verdict.shown
        return f"{self.verdict.shown}, over no records: nothing was there to judge"

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "guarantee": str(self.guarantee),
            "verdict": str(self.verdict),
            "guaranteeHeld": self.verdict is Verdict.HELD,
            **{wire: getattr(self, name) for name, wire in _COUNTS.items()},
            "lanes": {lane: dict(at) for lane, at in self.lanes.items()},
            "unjudgedLanes": list(self.unjudged_lanes),
            "offending": [asdict(o) for o in self.offending],
            "doubts": list(self.doubts),
            "notes": [*self.doubts, *self.notes],
        }

    @classmethod
    def of_document(cls, value: Mapping[str, Any]) -> Self:
        """The report that document() returned; the verdict follows from the counts again.

        Raises KeyError, TypeError, ValueError or AttributeError for anything else.
        """
        counts = {name: int(value[wire]) for name, wire in _COUNTS.items()}
        doubts = tuple(map(str, value["doubts"]))
        return cls(
            guarantee=Guarantee(value["guarantee"]),
            **counts,
            lanes={
                str(lane): {str(name): int(offset) for name, offset in at.items()}
                for lane, at in dict(value["lanes"]).items()
            },
            unjudged_lanes=tuple(map(str, value["unjudgedLanes"])),
            offending=tuple(Offending(**o) for o in value["offending"]),
            doubts=doubts,
            notes=tuple(map(str, value["notes"]))[len(doubts) :],
        )


# The counts, by their fields, with their names on the wire; in the order of both forms.
_COUNTS = {
    "sent": "sent",
    "counted": "counted",
    "expected": "expected",
    "delivered": "delivered",
    "lost": "lost",
    "missing": "missing",
    "duplicated": "duplicated",
    "unexpected": "unexpected",
    "misplaced": "misplaced",
    "out_of_order": "outOfOrder",
    "malformed": "malformed",
    "dead_letters": "deadLetters",
    "unjudged": "unjudged",
}


def text(report: Report) -> str:
    """The report as text for people."""
    counts = report.document()
    names = [name for name, value in counts.items() if type(value) is int]
    lines = [f"{report.guarantee}: {report.headline}", *(f"  {n:<11}{counts[n]:>12,}" for n in names)]
    lines += [
        f"  {o.kind}: {o.count} x topic {o.topic} key {o.key!r} value {o.value!r} at {o.where}"
        for o in report.offending
    ]
    lines += [*(f"  not judged: {doubt}" for doubt in report.doubts), *(f"  note: {note}" for note in report.notes)]
    return "\n".join(lines) + "\n"
