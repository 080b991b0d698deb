"""Children end with the watch, and the directories to remove are removed."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from ackwright.local.watch import Watch


def test_closing_kills_children_with_their_own_children_and_removes_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    with Watch(remove=(directory,)) as watch:
        child = watch.start(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        os.kill(grandchild, 0)
    assert child.wait(10) == -9
    assert child.stdout.read() == b""  # the pipe has no writer left: the grandchild has ended as well
    assert not directory.exists()


def test_the_exit_code_of_a_child_that_has_ended_stays_available() -> None:
    with Watch() as watch:
        child = watch.start([sys.executable, "-c", "raise SystemExit(7)"])
        assert child.wait(30) == 7
    assert child.poll() == 7


def test_a_childs_standard_input_is_empty() -> None:
    with Watch() as watch:
        child = watch.start(["cat"], stdout=subprocess.PIPE)
        assert child.wait(10) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may run a program as another user")
def test_a_child_of_another_account_has_none_of_roots_groups_and_ends_with_the_watch() -> None:
    nobody = pwd.getpwnam("nobody")
    with Watch() as watch:
        child = watch.start(["sh", "-c", "id -u; id -G; sleep 600"], stdout=subprocess.PIPE, account=nobody)
        assert child.stdout is not None
        assert int(child.stdout.readline()) == nobody.pw_uid
        assert int(child.stdout.readline()) == nobody.pw_gid
    assert child.wait(10) == -9


def test_other_processes_are_not_killed(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        with Watch():
            pass
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.2)
    finally:
        other.kill()
        other.wait(10)
