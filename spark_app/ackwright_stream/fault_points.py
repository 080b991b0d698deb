"""Fault points: named places in the commit protocol at which a test or the demo may stop or kill a process.

They do nothing unless the environment variable ACKWRIGHT_POINTS names a directory. A file there with the name of a
point (or `<point>@<topic>-<partition>` for one lane) arms it, and the file's text is the action. The first process at
the point renames the file to `<name>.hit`, so exactly one acts, and writes its process id into it:

    kill    SIGKILL to itself: a Python worker in a task, else the driver's Python
    hang    waits until `<name>.release` appears, so that somebody can kill, stop or overtake the process

The points, in the order in which a lane's task passes them: task-start, after-init, after-read, after-offsets,
mid-produce, before-commit, after-commit. In the driver: batch-start, batch-end (all lanes have committed, Spark does
not know of it yet), before-advance and after-advance (at-least-once). In the task: claimed (at-most-once).

With a sink of files a task that has dead letters also passes letters-written (they are durable, and no file is there).
Each task passes file-created after the file of each of its lanes.

A task of a stateful pipeline passes stored (its state and its rows are complete). Its driver then passes evaluated (of
all tasks, and nothing is in a transaction), after-init, after-read, after-offsets, mid-produce, before-commit and
after-commit. With a guarantee that writes the output outside of the transaction it passes mid-produce and written (all
rows were written) behind after-read (at-least-once), or behind after-commit (at-most-once). With a sink whose dead
letters are in another store it passes letters-written (they are durable) before before-commit. It passes replayed when
a batch has run again and its state is recorded.

With autoscaling the driver passes executors-before and executors-after, before and after it changes their number.

With a sink whose driver commits, a task passes mid-produce, then staged (its files are there, and in no commit), and,
if it has dead letters, letters-written; the driver passes after-read, before-commit, after-commit, and claimed.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

VARIABLE = "ACKWRIGHT_POINTS"
_POLL_S = 0.01


def fault_point(point: str, *lanes: object) -> None:
    """Performs the action of the armed point; does nothing if the point is not armed.

    lanes: those that the task at the point works on.
    """
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    for name in (point, *(f"{point}@{lane}" for lane in lanes)):
        armed, hit = Path(directory, name), Path(directory, f"{name}.hit")
        try:
            action = armed.read_text().strip()
            armed.rename(hit)
        except FileNotFoundError:
            continue  # not armed, or another process was faster
        hit.write_text(str(os.getpid()))
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "hang":
            while not Path(directory, f"{name}.release").exists():
                time.sleep(_POLL_S)
