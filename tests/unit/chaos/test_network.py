"""One-way cuts, in a network namespace: only packets of the other direction pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos import network

TESTS = Path(__file__).parents[2]
REASON = network.unavailable()
PROGRAM = f"""
import sys
sys.path[:0] = [{str(TESTS)!r}]
from chaos import network
if network.is_private():
    from unit.chaos.echo import check
    check()
else:
    network.enter([sys.executable, *sys.orig_argv[1:]])
"""


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_cut_drops_packets_in_one_direction_until_it_ends() -> None:
    completed = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert completed.stdout.splitlines() == [
        "1: arrived, answered",
        "from: arrived, not answered",
        "2: arrived, answered",
        "to: not arrived, not answered",
        "3: arrived, answered",
    ], completed.stderr


def test_without_a_namespace_nothing_is_cut() -> None:
    with (
        pytest.raises(RuntimeError, match="separate network namespace"),
        network.cut(1, "from"),
    ):
        pass
