"""The health that Flux computes for a pipeline in each state, with the library that Flux uses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import Any

from lab import binaries
from lab.cluster import print_progress
from unit.gitops.expected_health import EXPECTED, STATES


def kstatus(*resources: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The status and the message of each resource."""
    program = binaries.program("kstatus", print_progress)
    completed = subprocess.run(
        [program], input=json.dumps(resources), capture_output=True, text=True, timeout=60, check=False
    )
    assert completed.returncode == 0, completed.stderr
    pairs = (line.split("\t", 1) for line in completed.stdout.splitlines())
    return [(status, message) for status, message in pairs]


def test_flux_computes_the_expected_health() -> None:
    health = dict(zip(STATES, kstatus(*STATES.values()), strict=True))
    statuses = {name: status for name, (status, _) in health.items()}
    assert statuses == {name: flux for name, (_, flux) in EXPECTED.items()}
    assert "must have at least one entry" in health["invalid"][1]
    assert "no such image" in health["stalled"][1]
