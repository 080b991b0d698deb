"""Named points in the commit protocol at which a test or the demo may stop or kill the process that comes by.

Off unless ACKWRIGHT_POINTS names a directory. A file there called like the point (or `<point>@<topic>-<partition>` for one lane)
arms it; its text is the action. The first process that comes by renames the file to `<name>.hit`, so exactly one acts, and writes
its process id into it:

    kill    SIGKILL to itself (a Python worker in a task, the driver's Python otherwise)
    hang    stays there until `<name>.release` appears, for whoever wants to kill, stop or overtake it

The points, in the order in which a lane's task passes them: task-start, after-init, after-read, after-offsets, mid-produce,
before-commit, after-commit. In the driver: batch-start, batch-end (all lanes are through, Spark does not know of it),
before-advance and after-advance (at-least-once), claimed (at-most-once, in the task).
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "ACKWRIGHT_POINTS"


def fault_point(point: str, lane: object = None) -> None:
    """Does what the armed point asks for; nothing if none is armed."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    for name in (point, f"{point}@{lane}") if lane is not None else (point,):
        armed, hit = Path(directory, name), Path(directory, f"{name}.hit")
        try:
            action = armed.read_text().strip()
            armed.rename(hit)
        except FileNotFoundError:
            continue  # not armed, or somebody else was faster
        hit.write_text(str(os.getpid()))
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "hang":
            while not Path(directory, f"{name}.release").exists():
                time.sleep(0.01)
