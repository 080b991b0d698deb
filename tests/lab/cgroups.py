"""The lab's control groups, for cgroups version 1 (a tree per controller), version 2 (one tree), or both."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = "ackwright-lab"
_MOUNTS = Path("/sys/fs/cgroup")


def _trees() -> list[Path]:
    """The mount points of the hierarchies."""
    if (_MOUNTS / "cgroup.controllers").exists():
        return [_MOUNTS]
    return [tree for tree in _MOUNTS.iterdir() if tree.is_dir() and not tree.is_symlink()]


def _tree_of_daemons() -> Path:
    trees = _trees()
    by_name = {tree.name: tree for tree in trees}
    return by_name.get("systemd") or by_name.get("pids") or trees[0]


def daemons() -> Path:
    """The group that every daemon of the lab joins. It is in one of the trees."""
    group = _tree_of_daemons() / ROOT / "daemons"
    group.mkdir(parents=True, exist_ok=True)
    return group


@contextlib.contextmanager
def joined() -> Iterator[None]:
    """Moves this process to the group of the daemons, so that its commands are ended like daemons if it is killed."""
    tree = _tree_of_daemons()
    _, own = next(line for line in _memberships() if tree.name in line[0] or (tree == _MOUNTS and not line[0]))
    (daemons() / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (tree / own.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def _memberships() -> list[tuple[str, str]]:
    """The groups of this process: (names of the tree's controllers, path)."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return [(controllers, path) for _, controllers, path in lines]


def create(name: str) -> str:
    """Creates a group for a kubelet below the lab's group in every tree; returns its path in the kubelet's notation."""
    for tree in _trees():
        group = tree
        for part in (ROOT, name):
            parent, group = group, group / part
            group.mkdir(exist_ok=True)
            if (parent / "cgroup.subtree_control").exists():
                with contextlib.suppress(
                    OSError
                ):  # with both versions, version 2's root has no controllers to delegate
                    controllers = (parent / "cgroup.controllers").read_text().split()
                    (parent / "cgroup.subtree_control").write_text(" ".join(f"+{c}" for c in controllers))
            for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1: a new cpuset is empty and accepts no process
                if tree.name == "cpuset":
                    (group / setting).write_text((parent / setting).read_text())
    return f"/{ROOT}/{name}"


def _belongs(pid: str) -> bool:
    try:
        if f":/{ROOT}/" not in Path("/proc", pid, "cgroup").read_text():
            return False
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def holds(pid: int) -> bool:
    """Whether the process runs and belongs to the lab."""
    return _belongs(str(pid))


def members() -> list[int]:
    """The ids of all processes that belong to the lab, except for this process."""
    own = str(os.getpid())
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and entry != own and _belongs(entry)]


def _groups() -> Iterator[Path]:
    for tree in _trees():
        for directory, _, _ in os.walk(tree / ROOT, topdown=False):
            yield Path(directory)


def remove() -> None:
    """Removes the lab's groups. Raises OSError if one is still in use after 10 s."""
    deadline = time.monotonic() + 10
    while True:
        for group in _groups():
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                if time.monotonic() > deadline:
                    raise
        if not any(True for _ in _groups()):
            return
        time.sleep(0.05)


def exist() -> bool:
    return any(True for _ in _groups())
