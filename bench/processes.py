"""What processes use: CPU time and memory of everything below this one, from /proc (Linux)."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """cpu: seconds so far; rss: bytes."""

    pid: int
    name: str
    cpu: float
    rss: int


def below(root: int) -> list[Usage]:
    """The processes that descend from root, without it."""
    children: dict[int, list[int]] = {}
    found: dict[int, Usage] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # it has ended
        name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
        pid = int(entry.name)
        children.setdefault(int(rest[1]), []).append(pid)
        found[pid] = Usage(pid, name, (int(rest[11]) + int(rest[12])) / _TICKS, int(rest[21]) * _PAGE)
    below_root: list[Usage] = []
    todo = list(children.get(root, ()))
    while todo:
        pid = todo.pop()
        below_root.append(found[pid])
        todo.extend(children.get(pid, ()))
    return below_root


class CpuMeter:
    """Samples, while it is open, the CPU time of the JVMs and Python processes that are started below this process meanwhile."""

    def __init__(self, every: float = 0.1) -> None:
        self._every = every
        self._samples: list[tuple[float, float, float]] = []
        self._end = threading.Event()
        self._before = {u.pid for u in below(os.getpid())}
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> CpuMeter:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def between(self, start_ms: float, end_ms: float) -> Mapping[str, float]:
        """CPU seconds of "jvm" and "python" between two moments (ms since the epoch). What ran before the meter was opened (the
        brokers) is left out."""
        samples = np.array(self._samples)
        used = {}
        for column, name in ((1, "jvm"), (2, "python")):
            at = np.interp([start_ms, end_ms], samples[:, 0], samples[:, column])
            used[name] = float(at[1] - at[0])
        return used

    def _sample(self) -> None:
        while not self._end.wait(self._every):
            now = [u for u in below(os.getpid()) if u.pid not in self._before]
            jvm, python = (sum(u.cpu for u in now if u.name.startswith(kind)) for kind in ("java", "python"))
            self._samples.append((time.time() * 1000, jvm, python))


def workers(root: int) -> list[Usage]:
    """Spark's Python workers below a job's process; the daemon that forks them and does nothing else is left out."""
    everybody = below(root)
    daemons = [u for u in everybody if u.name.startswith("python") and _is_daemon(u.pid)]
    forked = {u.pid for d in daemons for u in below(d.pid)}
    return [u for u in daemons if u.pid in forked]


def _is_daemon(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return (
            b"pyspark.daemon" in command or b"ackwright_stream.worker_daemon" in command
        )  # Spark's own, and the job's
    except OSError:
        return False
