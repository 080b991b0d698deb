"""A pipeline under each guarantee becomes ready, delivers flights, and passes the audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pipelines import Installation, pipeline

FLIGHTS = 20_000


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_pipeline_delivers_and_passes_the_audit(installed: Installation, tmp_path: Path, guarantee: str) -> None:
    with pipeline(installed, guarantee) as p:
        p.wait_for("TopicsReady", "True")
        p.produce_flights(FLIGHTS)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered_and_audit(tmp_path)
        assert p.condition("GuaranteeMet")["status"] == "True"
