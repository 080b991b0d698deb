"""Twenty random kills under each guarantee; `make chaos` runs more.

The seed is fixed. ACKWRIGHT_CHAOS_SEED sets another one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import Guarantee
from chaos.campaign import Campaign
from chaos.plan import DESCRIPTIONS, Fault
from chaos.stateful import StatefulCampaign
from chaos.stateful_plan import LOSSES

KILLS = 20
SEED = int(os.environ.get("ACKWRIGHT_CHAOS_SEED", "1"))
FAULTS = [fault for fault in Fault if fault is not Fault.NETWORK]  # that one needs a network namespace


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_guarantee_holds_through_random_kills(
    fragile_kafka: EmbeddedKafka, tmp_path: Path, guarantee: Guarantee
) -> None:
    outcome = Campaign(fragile_kafka, guarantee, SEED, print, spark=False).run(tmp_path, KILLS)
    assert outcome.problems == (), f"seed {outcome.seed}"
    assert outcome.kills.total() >= KILLS


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_guarantee_holds_through_kills_of_spark_and_faults(
    fragile_kafka: EmbeddedKafka, tmp_path: Path, guarantee: Guarantee
) -> None:
    outcome = Campaign(fragile_kafka, guarantee, SEED, print, faults=FAULTS).run(tmp_path, 3 * KILLS)
    assert outcome.problems == (), f"seed {outcome.seed}"
    assert any("Spark" in kill for kill in outcome.kills)
    assert set(outcome.faults) == {DESCRIPTIONS[fault] for fault in FAULTS}


def test_counts_of_a_stateful_pipeline_hold_through_random_kills_and_losses_of_its_state(
    fragile_kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    outcome = StatefulCampaign(fragile_kafka, spark, SEED, print).run(tmp_path, KILLS)
    assert outcome.problems == (), f"seed {outcome.seed}"
    assert outcome.kills.total() == KILLS
    assert set(outcome.faults) == {loss.value for loss in LOSSES}


def test_control_with_positions_committed_before_their_rows_the_campaign_reports_losses(
    fragile_kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    campaign = Campaign(fragile_kafka, Guarantee.EXACTLY_ONCE, SEED, print, spark=False, unsafe="commit-first")
    outcome = campaign.run(tmp_path, KILLS)
    assert outcome.counts.lost > 0
    assert f"round 1: {outcome.counts.lost} records lost" in outcome.problems
