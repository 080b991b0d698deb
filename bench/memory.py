"""Measures the memory of Spark's Python workers over many batches.

Each lane's transaction creates a producer, whose memory must be freed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ackwright.local.supervise import Job
from ackwright.local.wait import wait_for
from bench import workload
from bench.figures import Figure, growth
from bench.latency import PARTITIONS, steady_load
from bench.processes import workers
from bench.runs import EXACTLY_ONCE, Copy, our_job, running

MAX_GROWTH = 0.05  # relative, from the mean of the first third of the samples to that of the last third
_SAMPLE_INTERVAL = 1.0  # seconds
_WARM_UP = 0.25  # fraction of the time, in which allocators and caches reach their final size
_MIB = 1024 * 1024


def _batches(job: Job) -> int:
    report = job.progress()
    return report.batches if report else 0


def measure(bootstrap: str, seconds: float, slots: int, directory: Path, report: Callable[[str], None]) -> list[Figure]:
    """Runs batches without a pause for `seconds` and samples the resident memory of all workers together."""
    source = workload.create(bootstrap, "source", PARTITIONS)
    times: list[float] = []
    sizes: list[float] = []
    try:
        with workload.sink(bootstrap, PARTITIONS) as sink:
            copy = Copy(bootstrap, source, sink, 100_000, slots, directory / "memory")
            with (
                running(our_job(copy, EXACTLY_ONCE, {"interval": "0s"}), copy.directory) as job,
                steady_load(bootstrap, source, sink) as load,
            ):
                wait_for(lambda: bool(load.latencies), "the first record is delivered", 120)
                threading.Event().wait(seconds * _WARM_UP)
                before = _batches(job)
                deadline = time.monotonic() + seconds * (1 - _WARM_UP)
                while time.monotonic() < deadline:
                    threading.Event().wait(_SAMPLE_INTERVAL)
                    times.append(time.monotonic())
                    sizes.append(sum(w.rss for w in workers(job.pid)) / _MIB)
                batches = _batches(job) - before
    finally:
        workload.delete(bootstrap, source)
    if not any(sizes):
        raise RuntimeError("the job's process has no Python worker among its descendants")
    memory = growth(times, sizes)
    duration = times[-1] - times[0]
    per_transaction = memory.slope * duration / max(1, batches * PARTITIONS) * 1024
    note = (
        f"{memory.start:.0f} to {memory.end:.0f} MiB over {batches:,} batches of {PARTITIONS} lanes in {duration:.0f} s"
    )
    report(f"memory of the Python workers: {note}")
    return [
        Figure(
            "growth of the Python workers' memory",
            round(memory.relative * 100, 1),
            "%",
            MAX_GROWTH * 100,
            at_least=False,
            note=f"{note}; {memory.slope * 3600:+.0f} MiB/h, {per_transaction:+.1f} KiB per transaction",
        )
    ]
