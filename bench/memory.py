"""Measures whether the memory of Spark's Python workers grows, over many tiny batches at the fastest trigger.

Each lane's transaction uses librdkafka, whose memory must be freed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from bench.context import Context
from bench.figures import Figure, Growth, growth
from bench.processes import workers
from bench.runs import Candidate
from bench.stream import Stream, stream

PARTITIONS = 4
BATCHES, QUICK_BATCHES = 10_000, 60
RATE = 200  # records per second
TARGET_PERCENT = 2.0  # of growth over the second half; a worker's size varies by about 1 %
_SAMPLE_INTERVAL = 0.5  # seconds
_STALL_S = 120.0
_KIB = 1024

Sample = tuple[int, dict[int, int]]  # batches delivered, and the resident bytes of each worker by its process id


def measure(context: Context) -> list[Figure]:
    """The growth of each worker over the second half of the batches."""
    batches = context.size(BATCHES, QUICK_BATCHES, context.batches)
    partitions = context.cases((PARTITIONS,), (PARTITIONS,))[0]
    with stream(context, context.guarantee, partitions, title="memory", trigger_s=0, rate=RATE) as ours:
        ours.begin()
        samples = _samples(ours, batches, context.report)
    return summary(samples, batches, partitions)


def _samples(ours: Stream, batches: int, report: Callable[[str], None]) -> list[Sample]:
    samples: list[Sample] = []
    reported = 0
    moved_at = time.monotonic()
    first = _delivered(ours.candidate)
    while not samples or samples[-1][0] < batches:
        time.sleep(_SAMPLE_INTERVAL)
        ours.candidate.running()
        ours.load.take()  # only its memory matters here, and this process's would grow
        delivered = _delivered(ours.candidate) - first
        if samples and delivered <= samples[-1][0]:
            if time.monotonic() - moved_at > _STALL_S:
                raise RuntimeError(f"no batch was delivered for {_STALL_S:g} s after {delivered} batches")
            continue
        moved_at = time.monotonic()
        samples.append((delivered, {w.pid: w.rss for w in workers(ours.candidate.pid)}))
        if delivered >= reported + batches // 10:
            reported = delivered
            report(f"memory: {delivered:,} of {batches:,} batches, {_mib(samples[-1])}")
    return samples


def _delivered(candidate: Candidate) -> int:
    progress = candidate.progress() if candidate.progress else None
    return progress.batches if progress else 0


def _mib(sample: Sample) -> str:
    return " + ".join(f"{rss / _KIB / _KIB:.0f}" for rss in sample[1].values()) + " MiB"


def growths(samples: Sequence[Sample], batches: int) -> dict[int, Growth]:
    """The growth of each worker (KiB per batch) over the second half, of those that run at its end.

    Raises RuntimeError if there is none: workers that are replaced all the time cannot be measured.
    """
    half = [sample for sample in samples if sample[0] >= batches / 2]
    output: dict[int, Growth] = {}
    for pid in half[-1][1]:
        points = [(float(delivered), sizes[pid] / _KIB) for delivered, sizes in half if pid in sizes]
        if len(points) >= max(6, len(half) // 2):
            output[pid] = growth(*zip(*points, strict=True))
    if not output:
        raise RuntimeError("no Python worker ran for most of the second half; measure more batches (--batches)")
    return output


def summary(samples: Sequence[Sample], batches: int, partitions: int) -> list[Figure]:
    """The growth of the worker that grew most."""
    most = max(growths(samples, batches).values(), key=lambda g: g.relative)
    workers_mib = f"workers {_mib(samples[0])} at first, {_mib(samples[-1])} at last"
    note = f"{batches:,} batches of {partitions} partitions; {workers_mib}"
    title = "memory of a Python worker over the second half of the batches"
    return [
        Figure(f"{title}: mean", round(most.mean / _KIB, 1), "MiB", note=note),
        Figure(f"{title}: slope", round(most.slope, 3), "KiB per batch"),
        Figure(
            f"{title}: growth",
            round(most.relative * 100, 2),
            "%",
            TARGET_PERCENT,
            at_least=False,
            note="largest worker",
        ),
    ]
