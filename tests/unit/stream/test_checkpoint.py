"""Checkpoints are removed, also those of killed drivers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ackwright_stream import checkpoint

OWNER = """
import sys, time
from pathlib import Path
from ackwright_stream import checkpoint
with checkpoint.throwaway(Path(sys.argv[1])) as place:
    Path(place).mkdir()
    print(place, flush=True)
    time.sleep(600)
"""


def test_it_is_new_and_gone_afterwards(tmp_path: Path) -> None:
    with checkpoint.throwaway(tmp_path) as first, checkpoint.throwaway(tmp_path) as second:
        assert first != second
        assert not Path(first).exists()  # Spark creates it
        Path(first).mkdir()
    assert list(tmp_path.iterdir()) == []


def test_a_killed_drivers_is_swept_and_a_living_ones_is_not(tmp_path: Path) -> None:
    owners = [
        subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    try:
        dead, alive = (Path(o.stdout.readline().strip()) for o in owners if o.stdout)
        os.kill(owners[0].pid, signal.SIGKILL)
        owners[0].wait(10)
        assert dead.exists()
        with checkpoint.throwaway(tmp_path):
            assert not dead.parent.exists()
            assert alive.exists()
    finally:
        for o in owners:
            o.kill()
            o.wait(10)


def test_other_directories_stay(tmp_path: Path) -> None:
    (tmp_path / "ackwright-without-a-lock").mkdir()
    with checkpoint.throwaway(tmp_path):
        pass
    assert [p.name for p in tmp_path.iterdir()] == ["ackwright-without-a-lock"]


def test_a_chosen_directory_is_created(tmp_path: Path) -> None:
    assert checkpoint.parent(str(tmp_path / "a" / "b")).is_dir()
