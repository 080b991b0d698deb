"""What a failed batch had claimed counts as lost, whatever it failed for (at-most-once)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream import delivery
from ackwright_stream.delivery.claims import FailedBatch
from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.positions import Lane, Position, Range
from minimal_job import minimal_job

A, B = Lane("in", 0), Lane("in", 1)
BATCH = FailedBatch((Range(A, 10, 20), Range(B, 5, 9)), driver=3, abandoned=0)


@pytest.mark.parametrize(
    ("positions", "lost"),
    [
        ({A: Position(10, driver=3), B: Position(5, driver=3)}, 0),
        ({A: Position(20, driver=3), B: Position(5, driver=3)}, 10),
        ({A: Position(20, driver=3), B: Position(9, driver=3)}, 14),
        ({A: Position(20, driver=3), B: None}, 10),  # its topic was recreated
        ({A: Position(25, driver=0), B: Position(9, driver=3)}, 4),  # a person has set one
        ({A: Position(7, driver=3), B: Position(30, driver=3)}, 4),
        ({}, 0),
    ],
)
def test_the_positions_tell_what_was_claimed(positions: dict[Lane, Position | None], lost: int) -> None:
    assert BATCH.uncounted(positions) == lost


def test_what_was_counted_when_the_batch_failed_is_not_counted_again() -> None:
    positions = {A: Position(20, driver=3), B: Position(9, driver=3)}
    assert FailedBatch(BATCH.ranges, driver=3, abandoned=10).uncounted(positions) == 4
    assert FailedBatch(BATCH.ranges, driver=3, abandoned=14).uncounted(positions) == 0


def test_positions_move_before_the_rows_at_most_once_alone() -> None:
    sink: Any = None
    assert [g for g in Guarantee if delivery.for_job(minimal_job(g)).moves_first(sink)] == [Guarantee.AT_MOST_ONCE]


@pytest.mark.parametrize(("writer", "first"), [(None, False), ("a writer", True)])
def test_those_of_a_stateful_pipeline_do_if_its_output_has_a_commit_of_its_own(
    writer: str | None, *, first: bool
) -> None:
    sink: Any = SimpleNamespace(decisions=SimpleNamespace(writer=writer))
    settings: Any = None
    jobs = {g: Stateful(minimal_job(g), settings) for g in Guarantee}
    assert {g for g, of_guarantee in jobs.items() if of_guarantee.moves_first(sink)} == (
        {Guarantee.AT_MOST_ONCE} if first else set()
    )
