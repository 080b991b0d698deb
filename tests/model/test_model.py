"""Searches the quick variants: the protocol is safe, and each shortcut violates an invariant in the expected way."""

from __future__ import annotations

import pytest

from .__main__ import VARIANTS, is_expected
from .config import edges
from .search import search

QUICK = [name for name, v in VARIANTS.items() if not v.slow]


@pytest.mark.parametrize("name", QUICK)
def test_verdict(name: str) -> None:
    variant = VARIANTS[name]
    result = search(variant.model(variant.cfg))
    trace = "\n".join(f"{i:2}. {step}" for i, step in enumerate(result.trace, 1))
    assert is_expected(variant, result), f"{result.verdict}: {result.violation}, expected {variant.violation}\n{trace}"


def test_each_kind_of_violation_occurs_in_a_quick_variant() -> None:
    """An invariant that no negative control violates proves nothing."""
    quick = {VARIANTS[name].violation for name in QUICK} - {None}
    all_violations = {v.violation for v in VARIANTS.values()} - {None}
    assert all_violations - quick <= {"transactional output"}  # needs half a million states


def test_concurrent_chains_keep_their_own_order() -> None:
    def interleavings(rest: str) -> list[str]:
        return [k + order for k, then in edges(rest) for order in interleavings(then)] if rest else [""]

    assert sorted(interleavings("I(OT|AP)E")) == ["IAOPTE", "IAOTPE", "IAPOTE", "IOAPTE", "IOATPE", "IOTAPE"]
