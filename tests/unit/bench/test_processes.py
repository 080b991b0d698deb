"""Trees of real processes are read, suspended and killed as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.processes import cpu_seconds, descendants, signal_tree, tree

from waiting import wait_until

# A child with a child in another session, as PySpark's daemon.
_PARENT = """
import subprocess, sys, time
child = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
subprocess.Popen(child, start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"up\n"
        yield process
    finally:
        signal_tree(process.pid, signal.SIGKILL)
        process.wait(10)
        process.stdout.close()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_tree_has_the_descendants_in_other_sessions(parent: subprocess.Popen[bytes]) -> None:
    (child,) = descendants(parent.pid)
    assert os.getsid(child.pid) != os.getsid(parent.pid)
    assert {u.pid for u in tree(parent.pid)} == {parent.pid, child.pid}
    assert cpu_seconds([parent.pid]) == pytest.approx(sum(u.cpu for u in tree(parent.pid)), abs=0.05)


def test_a_suspended_tree_stops_and_resumes_completely(parent: subprocess.Popen[bytes]) -> None:
    pids = [u.pid for u in tree(parent.pid)]
    signal_tree(parent.pid, signal.SIGSTOP)
    wait_until(lambda: all(state(pid) == "T" for pid in pids), "both are stopped", 10)
    signal_tree(parent.pid, signal.SIGCONT)
    wait_until(lambda: all(state(pid) != "T" for pid in pids), "both run again", 10)


def test_a_killed_tree_leaves_no_process(parent: subprocess.Popen[bytes]) -> None:
    pids = [u.pid for u in tree(parent.pid)]
    signal_tree(parent.pid, signal.SIGKILL)
    assert parent.wait(10) == -signal.SIGKILL
    wait_until(lambda: not any(is_alive(pid) for pid in pids), "both have ended", 10)
    assert tree(parent.pid) == []


def is_alive(pid: int) -> bool:
    try:
        return state(pid) != "Z"
    except FileNotFoundError:
        return False


def test_the_cpu_of_children_that_have_ended_counts() -> None:
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", "while __import__('time').process_time() < 0.3: pass"], check=True)
    assert cpu_seconds([os.getpid()]) - before >= 0.25
