"""The processes of this machine, from Linux's /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path


def processes_naming(directory: Path) -> list[int]:
    """The ids of processes whose command line contains the directory's path."""
    ids = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(directory).encode() in (process / "cmdline").read_bytes():
                ids.append(int(process.name))
    return ids
