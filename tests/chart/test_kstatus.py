"""What Flux makes of a pipeline in each state: its own library, built into a program that reads resources."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from lab import binaries
from unit.gitops.expected_health import EXPECTED, STATES


def kstatus(*resources: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Status and message of each."""
    program = binaries.program("kstatus", lambda line: print(line, file=sys.stderr))
    done = subprocess.run(
        [program], input=json.dumps(resources), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    pairs = (line.split("\t", 1) for line in done.stdout.splitlines())
    return [(status, message) for status, message in pairs]


def test_flux_says_how_it_is() -> None:
    found = dict(zip(STATES, kstatus(*STATES.values()), strict=True))
    assert {name: status for name, (status, _) in found.items()} == {name: flux for name, (_, flux) in EXPECTED.items()}
    assert "must have at least one entry" in found["invalid"][1]
    assert "no such image" in found["stalled"][1]
