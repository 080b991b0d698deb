"""Judges the output of a stateful pipeline that is not in the commit of its decision.

At-least-once writes it before the decision: all output of decided batches is there, records may be there more often,
and others may be of a batch that was written and not decided. At-most-once writes it behind the decision: output may be
absent, and each record is of a decided batch and there once. The state counts each record once under both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ackwright_stream.audit_decisions import History
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison


@dataclass(frozen=True)
class Leeway:
    """What the guarantee allows of output that is written apart."""

    repeats: bool = False  # at-least-once
    losses: bool = False  # at-most-once
    # Whether exactly-once is declared, for which lost and duplicated records are faults.
    strict: bool = True

    @property
    def is_none(self) -> bool:
        """Whether output and decision are in one commit."""
        return not (self.repeats or self.losses)


def of_groups(all_records: Comparison, keys: Comparison, decided: int | None) -> Comparison:
    """The comparison of records that groups have several of, of which the last one is known.

    all_records: all records in the sink with the last one of each group. keys: their keys with those of the groups.
    decided: how many records the decisions have; None if that is not known. An earlier record of a group is one of
    those that are numbered.
    """
    of_records = [o for o in all_records.offending if o.kind not in ("duplicated", "unexpected")]
    foreign = [o for o in keys.offending if o.kind == "unexpected"]
    surplus = 0 if decided is None else all_records.delivered - decided
    return replace(
        all_records,
        lost=max(all_records.lost, -surplus),
        duplicated=max(0, surplus),
        unexpected=keys.unexpected,
        offending=(*of_records, *foreign),
    )


def judged(comparison: Comparison, history: History, leeway: Leeway) -> tuple[Comparison, list[Doubt], list[str]]:
    """The comparison with what the decisions themselves show, with doubts and notes."""
    skipped, repeated = history.skipped(), history.repeated()
    if leeway.strict:
        lost, duplicated = comparison.lost + skipped, comparison.duplicated + repeated
        return replace(comparison, lost=lost, duplicated=duplicated), [], []
    doubts, notes = list[Doubt](), list[str]()
    if leeway.repeats and comparison.unexpected:
        offending = tuple(replace(o, kind="unjudged") if o.kind == "unexpected" else o for o in comparison.offending)
        unjudged = comparison.unjudged + comparison.unexpected
        comparison = replace(comparison, unexpected=0, unjudged=unjudged, offending=offending)
        reason = (
            "records of the output are of no batch that is decided; a batch that was written and not decided may have "
            "left them, so the audit judges only that the output of the decided batches is there"
        )
        doubts.append(Doubt(reason))
    if skipped or repeated:
        # No guarantee allows it: only the output may be repeated or lost.
        comparison = replace(comparison, unexpected=comparison.unexpected + skipped + repeated)
        notes.append(
            f"the state has not counted each record once: {skipped} offsets are in no batch, and {repeated} in two; "
            "they count as unexpected"
        )
    return comparison, doubts, notes
