"""Twenty random kills under each guarantee; `make chaos` runs more.

The seed is fixed. ACKWRIGHT_CHAOS_SEED sets another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from chaos.campaign import Campaign, plan

KILLS = 20
SEED = int(os.environ.get("ACKWRIGHT_CHAOS_SEED", "1"))


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_guarantee_holds_through_random_kills(
    fragile_kafka: EmbeddedKafka, tmp_path: Path, guarantee: Guarantee
) -> None:
    outcome = Campaign(fragile_kafka, guarantee, SEED, print).run(tmp_path, KILLS)
    assert outcome.problems == (), f"seed {outcome.seed}"
    assert outcome.kills.total() == KILLS


def test_a_seed_repeats_its_plan() -> None:
    assert (
        plan(Guarantee.EXACTLY_ONCE, 50, 7)
        == plan(Guarantee.EXACTLY_ONCE, 50, 7)
        != plan(Guarantee.EXACTLY_ONCE, 50, 8)
    )
