"""The named points: exactly one process acts, and none does unless a test armed it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ackwright_stream.fault_points import VARIABLE, fault_point
from waiting import ANSWER, wait_until


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    return tmp_path


def test_nothing_happens_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    (tmp_path / "batch-start").write_text("kill")
    monkeypatch.chdir(tmp_path)
    fault_point("batch-start")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch-start"]


def test_the_first_process_at_a_point_leaves_its_pid(points: Path) -> None:
    (points / "after-init").write_text("note")
    fault_point("before-commit", "t-0")
    assert not (points / "after-init.hit").exists()
    fault_point("after-init", "t-0")
    assert (points / "after-init.hit").read_text() == str(os.getpid())
    assert not (points / "after-init").exists()


def test_one_lane_can_be_meant(points: Path) -> None:
    (points / "after-init@t-1").write_text("note")
    fault_point("after-init", "t-0")
    fault_point("after-init")
    assert (points / "after-init@t-1").exists()
    fault_point("after-init", "t-1")
    assert (points / "after-init@t-1.hit").exists()


def test_hang_lasts_until_the_release_and_only_for_one(points: Path) -> None:
    (points / "claimed").write_text("hang")
    hanging = threading.Thread(target=fault_point, args=("claimed", "t-0"), daemon=True)
    hanging.start()
    wait_until((points / "claimed.hit").exists, "somebody at the point", 10)
    fault_point("claimed", "t-1")  # somebody else passes
    assert hanging.is_alive()
    (points / "claimed.release").touch()
    hanging.join(10)
    assert not hanging.is_alive()


def test_kill_is_sigkill(points: Path) -> None:
    (points / "mid-produce").write_text("kill")
    code = "from ackwright_stream.fault_points import fault_point; fault_point('mid-produce', 't-0'); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=ANSWER, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")
