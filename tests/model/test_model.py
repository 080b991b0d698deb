"""Every interleaving of the quick variants: the protocol holds, each of its shortcuts breaks in the expected way."""

from __future__ import annotations

import pytest

from .__main__ import as_expected
from .config import edges
from .search import search
from .variants import VARIANTS

QUICK = [name for name, v in VARIANTS.items() if not v.slow]


@pytest.mark.parametrize("name", QUICK)
def test_verdict(name: str) -> None:
    variant = VARIANTS[name]
    result = search(variant.cfg)
    told = "\n".join(f"{i:2}. {step}" for i, step in enumerate(result.trace, 1))
    assert as_expected(variant, result), f"{result.verdict}: {result.violation}, expected {variant.violation}\n{told}"


def test_each_kind_of_violation_is_found_by_a_quick_variant() -> None:
    """An invariant that no negative control breaks might as well be missing."""
    quick = {VARIANTS[name].violation for name in QUICK} - {None}
    everything = {v.violation for v in VARIANTS.values()} - {None}
    assert everything - quick <= {"transactional output"}  # takes half a million states


def test_concurrent_chains_keep_their_own_order() -> None:
    def ways(rest: str) -> list[str]:
        return [k + way for k, then in edges(rest) for way in ways(then)] if rest else [""]

    assert sorted(ways("I(OT|AP)E")) == ["IAOPTE", "IAOTPE", "IAPOTE", "IOAPTE", "IOATPE", "IOTAPE"]
