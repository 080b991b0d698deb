"""A chosen port is reserved at once, because its broker binds it only seconds later."""

from __future__ import annotations

import random
import socket
import subprocess
import sys

import pytest

from ackwright.local.ports import free_ports, is_free

_OTHER_PROCESS = """
import random, sys
from ackwright.local.ports import free_ports
candidates = [int(port) for port in sys.argv[1:]]
random.randint = lambda *_: candidates.pop(0)
print(free_ports(1)[0])
"""


def chosen_by_another_process(*candidates: int) -> int:
    """The port that another process chooses when its random generator returns the candidates in order."""
    completed = subprocess.run(
        [sys.executable, "-c", _OTHER_PROCESS, *map(str, candidates)], capture_output=True, text=True, check=True
    )
    return int(completed.stdout)


def test_another_process_does_not_choose_a_port_that_this_process_has_chosen() -> None:
    """No server listens on the ports. As a control, the other process chooses one of the remaining candidates."""
    first, second = free_ports(2)
    assert is_free(first)
    assert is_free(second)
    others = [p for p in range(20_000, 32_000) if p not in {first, second} and is_free(p)][:20]
    assert chosen_by_another_process(first, second, *others) in others


def test_a_port_can_be_chosen_again_when_its_process_has_ended() -> None:
    others = [p for p in range(31_999, 20_000, -1) if is_free(p)][:20]
    chosen = chosen_by_another_process(*others)
    assert chosen_by_another_process(chosen, *others) == chosen


def test_a_port_with_a_listener_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    port = next(p for p in range(30_000, 20_000, -1) if is_free(p))
    with socket.create_server(("127.0.0.1", port)):
        assert not is_free(port)
        candidates = [port, *range(25_000, 25_100)]
        monkeypatch.setattr(random, "randint", lambda *_: candidates.pop(0))
        assert free_ports(1) != [port]
    assert is_free(port)
