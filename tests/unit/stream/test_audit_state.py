"""What an audit of a stateful pipeline cannot judge, by the batches that are left.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright_stream import audit_state
from ackwright_stream.audit_decisions import History
from ackwright_stream.audit_state import Shape
from ackwright_stream.spark_internals.state_steps import StateKey, StateStep
from unit.stream.decided import DECISION, OFFSETS

KEY = StateKey("key", timed=False, window=False, session=False)
COUNTS = Shape(StateStep("Aggregate", (KEY,), rounds=False, overlapping=False, java=None), None, None)


def history(first: int, *, accepted_loss: str | None = None) -> History:
    """A batch with this number, and the next one."""
    decisions = [
        replace(DECISION, batch=number, offsets_before=None, offsets=OFFSETS, accepted_loss=accepted_loss)
        for number in (first, first + 1)
    ]
    result = History.of_texts([decision.to_json() for decision in decisions])
    assert result is not None
    return result


@pytest.mark.parametrize("first", [0, 1])
def test_counts_of_one_state_are_judged_whatever_is_left_of_its_decisions(first: int) -> None:
    assert audit_state.limits(history(first), COUNTS, []) == ([], [])


def test_of_a_state_in_place_of_a_lost_one_only_its_own_output_is_judged() -> None:
    late, unjudged = audit_state.limits(history(0, accepted_loss="f"), COUNTS, [])
    assert ["was lost and began empty" in doubt.reason for doubt in late] == [True]
    assert unjudged == []


def test_without_its_first_decision_nothing_of_such_a_state_is_judged() -> None:
    """Where the new state began to count is in its first decision alone."""
    late, unjudged = audit_state.limits(history(1, accepted_loss="f"), COUNTS, [])
    assert late == []
    assert ["its first decisions are compacted or deleted" in doubt.reason for doubt in unjudged] == [True]
