"""The named successions of the delivery simulator end on real brokers as they end in its model (docs/simulator.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support.simulated_pipeline import SimulatedPipeline
from simulator.scenarios import SCENARIOS, Scenario


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_brokers_lose_and_duplicate_as_the_simulator_does(
    fragile_kafka: EmbeddedKafka, tmp_path: Path, scenario: Scenario
) -> None:
    with SimulatedPipeline(fragile_kafka, scenario.settings, tmp_path) as pipeline:
        pipeline.replay(scenario.actions)
        assert pipeline.topic() == pipeline.expected_topic()
        assert pipeline.counts() == scenario.end()[1]
