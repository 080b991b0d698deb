"""Which processes belong to a test: those whose command line or environment names its directory."""

from __future__ import annotations

import os
from pathlib import Path


def program(pid: int) -> str:
    """The name of a process's program; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def naming(directory: Path) -> list[int]:
    """The ids of processes, this one excepted, whose command line or environment contains the directory's path."""
    text = str(directory).encode()
    processes = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
        except OSError:  # it has ended, or it is another user's
            continue
        if text in words and int(process.name) != os.getpid():
            processes.append(int(process.name))
    return processes
