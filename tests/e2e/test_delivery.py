"""A pipeline is applied, becomes ready, and delivers real flights under its guarantee."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.pipelines import Installation, pipeline

FLIGHTS = 20_000


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_applied_ready_delivered_and_audited(installed: Installation, tmp_path: Path, guarantee: str) -> None:
    with pipeline(installed, guarantee) as p:
        p.wait_for("TopicsReady", "True")
        p.feed(FLIGHTS)
        p.wait_for("Ready", "True", "Delivering")
        p.wait_until_delivered()
        verdict = p.audit(tmp_path)
        assert verdict["exitCode"] == 0, verdict
        assert p.condition("GuaranteeMet")["status"] == "True"
