"""How many offsets a batch may have under exactly-once, so that a lane's transaction does not outlast the coordinator's patience."""

from __future__ import annotations

import pytest

from ackwright_stream.delivery.exactly_once import limit, smaller
from ackwright_stream.jobspec import Guarantee, JobSpec
from ackwright_stream.lanes import Range
from ackwright_stream.positions import Lane
from minimal_job import minimal_job

RANGES = (Range(Lane("t", 0), 0, 500), Range(Lane("t", 1), 100, 400))


def job(guarantee: Guarantee, chosen: int | None) -> JobSpec:
    return minimal_job(guarantee, max_offsets_per_trigger=chosen)


def test_a_backlog_is_read_in_parts_under_exactly_once_alone() -> None:
    assert limit(job(Guarantee.EXACTLY_ONCE, None), 4) == 1_000_000
    assert limit(job(Guarantee.AT_LEAST_ONCE, None), 4) is limit(job(Guarantee.AT_MOST_ONCE, None), 4) is None


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_what_the_user_chose_is_kept(guarantee: Guarantee) -> None:
    assert limit(job(guarantee, 7), 4) == 7


@pytest.mark.parametrize(("seconds", "expected"), [(59.9, None), (60.0, 200), (3600.0, 200)])
def test_what_failed_for_its_size_is_followed_by_a_quarter(seconds: float, expected: int | None) -> None:
    assert smaller(job(Guarantee.EXACTLY_ONCE, None), RANGES, seconds) == expected
    assert smaller(job(Guarantee.EXACTLY_ONCE, None), (Range(Lane("t", 0), 0, 1),), 60.0) == 1
    assert smaller(job(Guarantee.AT_LEAST_ONCE, None), RANGES, seconds) is None
