"""Memory of Spark's Python workers over many batches: each lane's transaction takes a new producer, and all of it has to be given back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ackwright.local.supervise import Job
from ackwright.local.wait import wait_for
from bench import workload
from bench.figures import Figure, growth
from bench.latency import PARTITIONS, steady
from bench.processes import workers
from bench.runs import EXACTLY_ONCE, Copy, our_job, running

FLAT = 0.05  # growth from the first third of the samples to the last that passes for none
_EVERY = 1.0
_WARM_UP = 0.25  # of the time: allocators and handles settle
_MIB = 1024 * 1024


def _batches(job: Job) -> int:
    report = job.progress()
    return report.batches if report else 0


def measure(bootstrap: str, seconds: float, slots: int, directory: Path, say: Callable[[str], None]) -> list[Figure]:
    """Runs batches as fast as they come for `seconds` and samples the resident memory of all workers together."""
    source = workload.create(bootstrap, "source", PARTITIONS)
    times: list[float] = []
    sizes: list[float] = []
    try:
        with workload.sink(bootstrap, PARTITIONS) as sink:
            copy = Copy(bootstrap, source, sink, 100_000, slots, directory / "memory")
            with (
                running(our_job(copy, EXACTLY_ONCE, {"interval": "0s"}), copy.directory) as job,
                steady(bootstrap, source, sink) as found,
            ):
                wait_for(lambda: bool(found.seen), "the first record is delivered", 120)
                threading.Event().wait(seconds * _WARM_UP)
                before = _batches(job)
                deadline = time.monotonic() + seconds * (1 - _WARM_UP)
                while time.monotonic() < deadline:
                    threading.Event().wait(_EVERY)
                    times.append(time.monotonic())
                    sizes.append(sum(w.rss for w in workers(job.pid)) / _MIB)
                batches = _batches(job) - before
    finally:
        workload.delete(bootstrap, source)
    if not any(sizes):
        raise RuntimeError("no Python worker was found below the job's process")
    seen = growth(times, sizes)
    each = seen.slope * (times[-1] - times[0]) / max(1, batches * PARTITIONS) * 1024
    note = f"{seen.start:.0f} to {seen.end:.0f} MiB over {batches:,} batches of {PARTITIONS} lanes in {times[-1] - times[0]:.0f} s; "
    say(f"memory of the Python workers: {note}")
    return [
        Figure(
            "growth of the Python workers' memory",
            round(seen.relative * 100, 1),
            "%",
            FLAT * 100,
            at_least=False,
            note=f"{note}{seen.slope * 3600:+.0f} MiB/h, {each:+.1f} KiB a transaction",
        )
    ]
