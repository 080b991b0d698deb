"""The chart's own test, in a cluster that runs it."""

from __future__ import annotations

from e2e.pipelines import SYSTEM, Installation


def test_helm_test_passes(installed: Installation) -> None:
    told = installed.cluster.helm("test", "ackwright", "--namespace", SYSTEM, "--timeout", "3m")
    assert "Phase:          Succeeded" in told, told
