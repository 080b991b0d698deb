"""The batches that an audit reads from decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ackwright_stream.audit_decisions import History
from ackwright_stream.decisions import Decision
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from unit.stream.decided import DECISION, FIRST, SECOND


def log_entry(watermark: int) -> str:
    return f'v1\n{{"batchWatermarkMs":{watermark},"conf":{{}}}}\n{{"in":{{"0":7}}}}'


def batches(*ends: int, first: int = 0) -> list[Decision]:
    """Contiguous decisions whose batches end at these offsets of the first lane; the watermark is 1000 * number."""
    starts = [0, *ends]
    return [
        replace(
            DECISION,
            batch=number,
            starts={FIRST: start, SECOND: 9},
            positions={FIRST: end, SECOND: 9},
            offsets_before=log_entry(1000 * (number - 1)) if number else None,
            offsets=log_entry(1000 * number),
        )
        for number, (start, end) in enumerate(zip(starts, ends, strict=False), first)
    ]


def history(decisions: list[Decision]) -> History:
    result = History.of_texts([decision.to_json() for decision in decisions])
    assert result is not None
    return result


def test_it_has_ranges_watermarks_and_the_number_of_records() -> None:
    both = history(batches(5, 7))
    assert both.is_complete
    assert both.begin == {("in", 0): 0, ("in-2", 1): 9}
    assert both.last.end == {("in", 0): 7, ("in-2", 1): 9}
    assert [(b.late_before, b.emitted_before) for b in both.batches] == [(0, 0), (0, 1000)]
    assert both.records == 2 * DECISION.records
    assert (both.skipped(), both.repeated()) == (0, 0)


def test_without_decisions_there_is_none() -> None:
    assert History.of_texts([]) is None


def test_compaction_leaves_the_last_ones() -> None:
    first, *_, last_but_one, last = batches(1, 2, 3, 4, 5)
    left = history([first, last_but_one, last])
    assert [batch.number for batch in left.batches] == [3, 4]
    assert not left.is_complete


def test_a_new_state_begins_with_a_new_first_batch() -> None:
    later = history([*batches(5, 7), *batches(9)])
    assert [batch.number for batch in later.batches] == [0]


def test_it_knows_that_the_state_began_empty_in_place_of_a_lost_one() -> None:
    before, after = batches(5), [replace(d, accepted_loss="0123456789ab") for d in batches(7, 9)]
    assert not history(before).last.accepted_loss
    later = history([*before, *after])
    assert (later.last.accepted_loss, len(later.batches)) == (True, 2)


def test_gaps_and_overlaps_of_ranges_are_counted() -> None:
    one, two, three = batches(5, 7, 9)
    moved = replace(two, starts={**two.starts, FIRST: 6}, positions={**two.positions, FIRST: 10})
    changed = history([one, moved, three])
    assert (changed.skipped(), changed.repeated()) == (1, 3)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"batch": 1}', DECISION.to_json().replace("batchWatermarkMs", "x")])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(JobError) as raised:
        History.of_texts([text])
    assert raised.value.reason is Reason.STATE_LOST
