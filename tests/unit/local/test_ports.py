"""Ports are claimed when they are chosen: brokers bind them seconds later, beside others that choose theirs."""

from __future__ import annotations

import random
import socket
import subprocess
import sys

import pytest

from ackwright.local.ports import free_ports, is_free

_ANOTHER = """
import random, sys
from ackwright.local.ports import free_ports
drawn = [int(port) for port in sys.argv[1:]]
random.randint = lambda *_: drawn.pop(0)
print(free_ports(1)[0])
"""


def elsewhere(*drawn: int) -> int:
    """The port that another process chooses, which draws these."""
    done = subprocess.run(
        [sys.executable, "-c", _ANOTHER, *map(str, drawn)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_another_process_does_not_get_a_port_that_was_chosen_here() -> None:
    """Nobody listens there yet. The others are the control: of them it takes one."""
    first, second = free_ports(2)
    assert is_free(first)
    assert is_free(second)
    others = [p for p in range(20_000, 32_000) if p not in {first, second} and is_free(p)][:20]
    assert elsewhere(first, second, *others) in others


def test_a_port_can_be_chosen_again_when_its_process_has_ended() -> None:
    others = [p for p in range(31_999, 20_000, -1) if is_free(p)][:20]
    chosen = elsewhere(*others)
    assert elsewhere(chosen, *others) == chosen


def test_a_port_on_which_somebody_listens_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = next(p for p in range(30_000, 20_000, -1) if is_free(p))
    with socket.create_server(("127.0.0.1", taken)):
        assert not is_free(taken)
        drawn = [taken, *range(25_000, 25_100)]
        monkeypatch.setattr(random, "randint", lambda *_: drawn.pop(0))
        assert free_ports(1) != [taken]
    assert is_free(taken)
