"""How long a restart waits: doubled, capped, jittered, forgiven after health."""

from __future__ import annotations

import pytest

from ackwright_stream.backoff import Backoff
from ackwright_stream.jobspec import Restart

SETTINGS = Restart(initial_ms=200, max_ms=1_000, forgive_after_ms=60_000, max_attempts=5)


def after(failures: int) -> Backoff:
    backoff = Backoff(SETTINGS)
    for _ in range(failures):
        backoff = backoff.failed(healthy_ms=0)
    return backoff


@pytest.mark.parametrize(("failures", "longest"), [(1, 0.2), (2, 0.4), (3, 0.8), (4, 1.0), (400, 1.0)])
def test_it_doubles_up_to_the_cap(failures: int, longest: float) -> None:
    assert after(failures).delay_s(chance=1.0) == pytest.approx(longest)


@pytest.mark.parametrize(("chance", "part"), [(0.0, 0.5), (0.5, 0.75), (0.999999, 1.0)])
def test_chance_takes_off_up_to_a_half(chance: float, part: float) -> None:
    assert after(2).delay_s(chance) == pytest.approx(0.4 * part, rel=1e-3)


def test_health_forgives_and_too_little_of_it_does_not() -> None:
    assert after(4).failed(healthy_ms=60_000) == Backoff(SETTINGS, 1)
    assert after(4).failed(healthy_ms=59_999) == Backoff(SETTINGS, 5)


def test_it_is_exhausted_after_so_many_in_a_row() -> None:
    assert [after(n).exhausted for n in (0, 4, 5, 6)] == [False, False, True, True]
    assert not after(4).failed(healthy_ms=60_000).exhausted
