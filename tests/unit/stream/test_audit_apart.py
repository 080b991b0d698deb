"""How an audit judges output that is written before or behind the decision of its batch.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright_stream import audit_apart
from ackwright_stream.audit_apart import Leeway
from ackwright_stream.audit_decisions import History
from ackwright_stream.audit_report import Comparison, Offending
from ackwright_stream.positions import Lane
from unit.stream.decided import DECISION, FIRST, OFFSETS

NONE, REPEATS, LOSSES = Leeway(), Leeway(repeats=True, strict=False), Leeway(losses=True, strict=False)
OF_TABLE = Leeway(strict=False)
RIGHT = Comparison(5, 5, 0, 0, 0, (), {})
FOREIGN = Offending("unexpected", "out", "x", "1", 1, "out-0@7")


def history(gap: int = 0) -> History:
    """Two batches, with so many offsets between them that are in neither."""
    first = replace(DECISION, batch=0, offsets_before=None, offsets=OFFSETS)
    behind: dict[Lane, int] = {**first.positions, FIRST: first.positions[FIRST] + gap}
    second = replace(first, batch=1, starts=behind, positions=behind)
    result = History.of_texts([first.to_json(), second.to_json()])
    assert result is not None
    return result


@pytest.mark.parametrize("leeway", [NONE, REPEATS, LOSSES, OF_TABLE])
def test_what_is_right_stays_right(leeway: Leeway) -> None:
    assert audit_apart.judged(RIGHT, history(), leeway) == (RIGHT, [], [])


def test_records_of_no_decided_batch_are_a_doubt_where_output_precedes_the_decision() -> None:
    with_foreign = replace(RIGHT, unexpected=1, offending=(FOREIGN,))
    comparison, [doubt], _ = audit_apart.judged(with_foreign, history(), REPEATS)
    assert (comparison.unexpected, comparison.unjudged) == (0, 1)
    assert [o.kind for o in comparison.offending] == ["unjudged"]
    assert "written and not decided" in doubt.reason


@pytest.mark.parametrize("leeway", [NONE, LOSSES, OF_TABLE])
def test_control_elsewhere_they_are_a_fault(leeway: Leeway) -> None:
    comparison, doubts, _ = audit_apart.judged(replace(RIGHT, unexpected=1), history(), leeway)
    assert (comparison.unexpected, doubts) == (1, [])


@pytest.mark.parametrize("gap", [2, -2])
@pytest.mark.parametrize("leeway", [REPEATS, LOSSES, OF_TABLE])
def test_state_that_has_not_counted_each_record_once_is_a_fault_under_each_guarantee(leeway: Leeway, gap: int) -> None:
    comparison, _, [note] = audit_apart.judged(RIGHT, history(gap), leeway)
    assert (comparison.lost, comparison.duplicated, comparison.unexpected) == (0, 0, 2)
    assert "not counted each record once" in note


@pytest.mark.parametrize(("gap", "faults"), [(2, (2, 0)), (-2, (0, 2))])
def test_control_exactly_once_names_them_lost_or_duplicated(gap: int, faults: tuple[int, int]) -> None:
    comparison, _, _ = audit_apart.judged(RIGHT, history(gap), NONE)
    assert (comparison.lost, comparison.duplicated) == faults


# Three groups of which the sink has the last record, and two earlier ones.
GROUPS = Comparison(3, 5, 0, 0, 2, (FOREIGN,), {})
KEYS = Comparison(3, 3, 0, 0, 0, (), {})


@pytest.mark.parametrize(
    ("decided", "delivered", "lost_last", "foreign", "expected"),
    [
        (5, 5, 0, 0, (0, 0, 0)),  # the earlier ones are no fault
        (5, 7, 0, 0, (0, 2, 0)),
        (5, 4, 0, 0, (1, 0, 0)),
        (5, 5, 1, 0, (1, 0, 0)),  # the last record of a group is absent, and another one is there twice
        (5, 6, 0, 1, (0, 1, 1)),
        (None, 9, 0, 0, (0, 0, 0)),  # old decisions are gone
    ],
)
def test_records_of_groups_are_numbered_and_the_last_ones_required(
    decided: int | None, delivered: int, lost_last: int, foreign: int, expected: tuple[int, int, int]
) -> None:
    every = replace(GROUPS, delivered=delivered, lost=lost_last)
    keys = replace(KEYS, unexpected=foreign, offending=(FOREIGN,) * foreign)
    comparison = audit_apart.of_groups(every, keys, decided)
    assert (comparison.lost, comparison.duplicated, comparison.unexpected) == expected
    assert comparison.offending == (FOREIGN,) * foreign
