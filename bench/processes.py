"""CPU time and memory of processes, from Linux's /proc."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """The resources that one process uses."""

    pid: int
    name: str
    cpu: float  # seconds since the start of the process, with those of its children that have ended
    rss: int  # bytes


def _processes() -> tuple[dict[int, Usage], dict[int, list[int]]]:
    """All processes by pid, and the pids of the children of each."""
    usages: dict[int, Usage] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # the process has ended
        name, fields = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        pid = int(entry.name)
        children.setdefault(int(fields[1]), []).append(pid)
        usages[pid] = Usage(pid, name, sum(map(int, fields[11:15])) / _TICKS, int(fields[21]) * _PAGE)
    return usages, children


def tree(root: int) -> list[Usage]:
    """A process and its descendants; empty if it has ended."""
    usages, children = _processes()
    result: list[Usage] = []
    pending = [root] if root in usages else []
    while pending:
        pid = pending.pop()
        result.append(usages[pid])
        pending.extend(children.get(pid, ()))
    return result


def descendants(root: int) -> list[Usage]:
    """The descendants of a process, without the process itself."""
    return [u for u in tree(root) if u.pid != root]


def cpu_seconds(roots: Iterable[int]) -> float:
    """CPU seconds that the processes and their descendants have used."""
    return sum(u.cpu for root in roots for u in tree(root))


def signal_tree(root: int, number: int) -> None:
    """Sends a signal to a process and its descendants, and to those that were started meanwhile."""
    signalled: set[int] = set()
    while pids := [u.pid for u in tree(root) if u.pid not in signalled]:
        signalled.update(pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class UsageMeter:
    """Samples CPU time and memory of JVMs and Python processes that this process starts while the meter is open.

    interval: seconds between two samples.
    """

    def __init__(self, interval: float = 0.1) -> None:
        self._interval = interval
        self._samples: list[tuple[float, float, float]] = []
        self._peaks = {"jvm": 0, "python": 0}  # bytes
        self._end = threading.Event()
        self._ignored = {u.pid for u in descendants(os.getpid())}
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> UsageMeter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def between(self, start_ms: float, end_ms: float) -> Mapping[str, float]:
        """CPU seconds of "jvm" and "python" between two times (ms since the epoch).

        Leaves out processes that ran before the meter was opened, such as the brokers.
        """
        samples = np.array(self._samples)
        used = {}
        for column, name in ((1, "jvm"), (2, "python")):
            at = np.interp([start_ms, end_ms], samples[:, 0], samples[:, column])
            used[name] = float(at[1] - at[0])
        return used

    @property
    def peaks(self) -> Mapping[str, int]:
        """The most bytes of memory that "jvm" and "python" had at one time, all processes of the kind together."""
        return dict(self._peaks)

    def _sample(self) -> None:
        while not self._end.wait(self._interval):
            usages = [u for u in descendants(os.getpid()) if u.pid not in self._ignored]
            jvm, python = ([u for u in usages if u.name.startswith(kind)] for kind in ("java", "python"))
            self._samples.append((time.time() * 1000, sum(u.cpu for u in jvm), sum(u.cpu for u in python)))
            for kind, of_kind in (("jvm", jvm), ("python", python)):
                self._peaks[kind] = max(self._peaks[kind], sum(u.rss for u in of_kind))


def workers(root: int) -> list[Usage]:
    """Spark's Python workers of a job's process, without the daemon that forks them."""
    daemons = [u for u in descendants(root) if u.name.startswith("python") and _is_daemon(u.pid)]
    forked = {u.pid for d in daemons for u in descendants(d.pid)}
    return [u for u in daemons if u.pid in forked]


def _is_daemon(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"pyspark.daemon" in command or b"ackwright_stream.worker_daemon" in command
    except OSError:
        return False
