"""Samples of memory, threads and handles during a campaign, and whether they are flat.

A *generation* is one life of one process, from its start until it is killed. Its first two minutes do not count:
imports, the JVM's classes, the first batches and pools of threads, which live for a minute, belong to the start. Of the
rest, the median of the last quarter of the samples must not exceed the median of the first quarter by more than an
allowance. Medians ignore single peaks (a garbage collection, a batch of recovered records), and a leak that matters in
a day exceeds the allowance in two hours. Of a JVM's threads the fewest are compared. A generation with fewer
than 12 samples is not judged.

The brokers' open transactions are judged in the same way, as one series for the complete soak.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka.admin import KafkaAdminClient

WARM_UP_S = 120.0
EVERY_S = 5.0
FEWEST = 12  # samples of a generation that is judged
JUDGED = ("driver", "JVM", "worker daemon", "broker ", "brokers")  # roles; the last one has the open transactions
_OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_MB = 1024 * 1024


@dataclass(frozen=True)
class Sample:
    """One process at one moment."""

    seconds: float  # since the soak began
    role: str
    pid: int
    memory: int  # resident, in MB
    threads: int
    handles: int


@dataclass(frozen=True)
class Allowance:
    """By how much the end of a series may exceed its beginning."""

    ratio: float
    more: float

    def exceeded(self, first: float, last: float) -> bool:
        return last > first * self.ratio + self.more


ALLOWANCES: Mapping[str, Allowance] = {
    "memory": Allowance(1.1, 32),
    "threads": Allowance(1.0, 4),
    "handles": Allowance(1.05, 16),
}
# A JVM uses its heap up to -Xmx before it collects old objects, so its memory rises for an hour without a leak.
JVM_MEMORY = Allowance(1.0, 512)
# Its pools of threads grow at each peak, such as the death of a worker, and shrink a minute later; so the fewest
# threads of each quarter are compared. A leak of one thread per killed worker adds 700 in two hours.
JVM_THREADS = Allowance(1.0, 32)
# Every round has other topics, of 3 to 128 lanes, and a deleted log keeps its files for a minute.
BROKER_HANDLES = Allowance(1.1, 250)
OPEN_TRANSACTIONS = Allowance(1.0, 8)  # the campaign kills drivers with open transactions, and their number varies


@dataclass(frozen=True)
class Series:
    """The first and the last quarter of one measurement of one generation."""

    name: str
    measurement: str
    samples: int
    first: float
    last: float
    flat: bool


def quarters(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first and of the last quarter."""
    quarter = max(1, len(values) // 4)
    return statistics.median(values[:quarter]), statistics.median(values[-quarter:])


def lows(values: Sequence[float]) -> tuple[float, float]:
    """The least values of the first and of the last quarter."""
    quarter = max(1, len(values) // 4)
    return min(values[:quarter]), min(values[-quarter:])


def _allowance(role: str, measurement: str) -> Allowance:
    if measurement == "memory" and role.startswith(("broker", "JVM")):
        return JVM_MEMORY
    if measurement == "threads" and role == "JVM":
        return JVM_THREADS
    return BROKER_HANDLES if measurement == "handles" and role.startswith("broker") else ALLOWANCES[measurement]


def judge(samples: Iterable[Sample]) -> list[Series]:
    """Each measurement of each generation that is long enough."""
    generations: dict[tuple[str, int], list[Sample]] = {}
    for sample in samples:
        generations.setdefault((sample.role, sample.pid), []).append(sample)
    judged = []
    for (role, pid), all_samples in generations.items():
        counted = [s for s in all_samples if s.seconds - all_samples[0].seconds >= WARM_UP_S]
        if len(counted) < FEWEST:
            continue
        for measurement in ALLOWANCES:
            compared = lows if _allowance(role, measurement) is JVM_THREADS else quarters
            first, last = compared([getattr(s, measurement) for s in counted])
            flat = not _allowance(role, measurement).exceeded(first, last)
            judged.append(Series(f"{role} ({pid})", measurement, len(counted), first, last, flat))
    return judged


def unjudged(series: Sequence[Series]) -> list[str]:
    """What a soak must judge and has not, since it was too short, or samples failed all the time."""
    names = [s.name for s in series]
    return [
        f"{role} was not judged: there are too few samples of it; let the soak run for longer"
        for role in JUDGED
        if not any(name.startswith(role) for name in names)
    ]


def judge_transactions(counts: Sequence[int]) -> list[Series]:
    """The number of open transactions, if there are enough samples."""
    if len(counts) < FEWEST:
        return []
    first, last = quarters(counts)
    flat = not OPEN_TRANSACTIONS.exceeded(first, last)
    return [Series("brokers", "open transactions", len(counts), first, last, flat)]


class Sampler:
    """Samples in the background. processes: returns the process ids by role, at each sample."""

    def __init__(self, bootstrap: str, processes: Callable[[], Mapping[str, int]]) -> None:
        self.samples: list[Sample] = []
        self.transactions: list[int] = []
        self._bootstrap, self._processes = bootstrap, processes
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)

    def judge(self) -> list[Series]:
        return judge(self.samples) + judge_transactions(self.transactions)

    def _run(self) -> None:
        started = time.monotonic()
        while not self._end.wait(EVERY_S):
            seconds = time.monotonic() - started
            for role, pid in self._processes().items():
                with suppress(OSError):  # it has just ended
                    self.samples.append(sample(seconds, role, pid))
            with suppress(Exception):  # brokers are killed all the time; then there is no number
                self.transactions.append(open_transactions(self._bootstrap))


def sample(seconds: float, role: str, pid: int) -> Sample:
    """The process as /proc shows it. Raises OSError if it has ended."""
    directory = Path("/proc", str(pid))
    status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
    memory = int(status.get("VmRSS", "0 kB").split()[0]) * 1024 // _MB
    handles = sum(1 for _ in (directory / "fd").iterdir())
    return Sample(seconds, role, pid, memory, int(status["Threads"]), handles)


def open_transactions(bootstrap: str) -> int:
    """The number of transactions that have not ended."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5000)
    try:
        return sum(len(listed) for listed in admin.list_transactions(state_filters=list(_OPEN_STATES)).values())
    finally:
        admin.close()
