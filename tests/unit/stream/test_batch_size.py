"""How many offsets a batch may have under each guarantee, so that a lane's transaction ends before its timeout."""

from __future__ import annotations

import pytest

from ackwright_stream import delivery
from ackwright_stream.delivery.batch import Delivery
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.positions import Lane, Range
from minimal_job import minimal_job

RANGES = (Range(Lane("t", 0), 0, 500), Range(Lane("t", 1), 100, 400))


def of(guarantee: Guarantee, max_offsets: int | None = None) -> Delivery:
    return delivery.of(minimal_job(guarantee, max_offsets_per_trigger=max_offsets))


def test_a_backlog_is_read_in_parts_under_exactly_once_alone() -> None:
    assert of(Guarantee.EXACTLY_ONCE).batch_limit(4) == 1_000_000
    assert of(Guarantee.AT_LEAST_ONCE).batch_limit(4) is of(Guarantee.AT_MOST_ONCE).batch_limit(4) is None


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_the_users_limit_wins(guarantee: Guarantee) -> None:
    assert of(guarantee, 7).batch_limit(4) == 7


@pytest.mark.parametrize(("seconds", "expected"), [(59.9, None), (60.0, 200), (3600.0, 200)])
def test_a_batch_that_failed_for_its_size_is_followed_by_a_quarter(seconds: float, expected: int | None) -> None:
    assert of(Guarantee.EXACTLY_ONCE).next_limit(RANGES, seconds) == expected
    assert of(Guarantee.EXACTLY_ONCE).next_limit((Range(Lane("t", 0), 0, 1),), 60.0) == 1
    assert of(Guarantee.AT_LEAST_ONCE).next_limit(RANGES, seconds) is None
    assert of(Guarantee.AT_MOST_ONCE).next_limit(RANGES, seconds) is None
