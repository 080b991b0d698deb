"""The three guarantees and Spark's own Kafka sink copy the same topic in turns; only whole batches after the warm-up count."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import workload
from bench.figures import Figure, Throughput, spread, throughput
from bench.processes import CpuMeter
from bench.runs import AT_LEAST_ONCE, AT_MOST_ONCE, EXACTLY_ONCE, SPARK_SINK, Copy, copy_with

VARIANTS = (SPARK_SINK, EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)
TARGETS = {EXACTLY_ONCE: 1.0, AT_LEAST_ONCE: 0.97}
WARM_UP = 3  # batches: both JVMs compile during the first ones
_BATCH_LINE = re.compile(r"batch \d+: \d+ lanes, \S+ records, ([\d.]+) s \(([\d.]+) s to find the ranges\)")


@dataclass(frozen=True)
class Case:
    """size: bytes of a value; batches: how many, the warm-up included, of batch records each."""

    size: int
    partitions: int
    batches: int
    batch: int

    def __str__(self) -> str:
        size = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        return f"{size} × {self.partitions} partitions, {self.batch:,} records a batch"


def measure(
    bootstrap: str,
    case: Case,
    directory: Path,
    say: Callable[[str], None],
    *,
    slots: int,
    rounds: int,
    variants: Sequence[str] = VARIANTS,
) -> list[Figure]:
    """Runs the variants in turns, `rounds` times, on one source topic."""
    records = case.batch * case.batches
    source = workload.create(bootstrap, "source", case.partitions)
    runs: dict[str, list[Throughput]] = {v: [] for v in variants}
    parts: dict[str, str] = {}
    try:
        workload.fill(bootstrap, source, case.partitions, records, case.size)
        for number in range(rounds):
            # The order turns around every round: whatever drifts (disks that fill, heat) then favours nobody.
            for variant in variants if number % 2 == 0 else tuple(reversed(variants)):
                where = directory / f"{case.size}-{case.partitions}-{case.batch}-{slots}-{number}-{variant.split()[0]}"
                with workload.sink(bootstrap, case.partitions) as sink, CpuMeter() as meter:
                    copy_with(variant, Copy(bootstrap, source, sink, case.batch, slots, where))
                    times = workload.append_times(bootstrap, sink, records)
                measured = records - WARM_UP * case.batch
                cpu = meter.between(float(times[WARM_UP * case.batch - 1]), float(times[-1]))
                each = {name: seconds * 1e6 / measured for name, seconds in cpu.items()}
                runs[variant].append(throughput(times, case.batch, WARM_UP, each))
                parts[variant] = _where_time_goes(where / "job.log")
                say(f"{case}, {variant}, round {number + 1}: {runs[variant][-1].rate:,.0f} records/s {parts[variant]}")
    finally:
        workload.delete(bootstrap, source)
    return figures(f"{case}, local[{slots}]", runs, parts)


def figures(title: str, runs: dict[str, list[Throughput]], parts: dict[str, str]) -> list[Figure]:
    """Each variant's rate, and ours relative to Spark's own sink."""
    found: list[Figure] = []
    middle = {variant: statistics.median(run.rate for run in made) for variant, made in runs.items()}
    for variant, made in runs.items():
        cpu = {name: statistics.median(run.cpu.get(name, 0.0) for run in made) for name in ("jvm", "python")}
        notes = [
            spread([run.rate for run in made]),
            f"a batch {statistics.median(run.cycle_ms for run in made):,.0f} ms",
            f"CPU a record {cpu['jvm']:.1f} µs JVM, {cpu['python']:.1f} µs Python",
            parts.get(variant, ""),
        ]
        found.append(Figure(f"{title}: {variant}", middle[variant], "records/s", note="; ".join(n for n in notes if n)))
    for variant, target in TARGETS.items():
        if variant in runs and SPARK_SINK in runs:
            ratio = middle[variant] / middle[SPARK_SINK]
            found.append(Figure(f"{title}: {variant} ÷ {SPARK_SINK}", round(ratio, 3), "", target))
    return found


def _where_time_goes(log: Path) -> str:
    """From our job's debug log: how long a batch was in our hands, of which finding the ranges."""
    try:
        found = [(float(a), float(b)) for a, b in _BATCH_LINE.findall(log.read_text(errors="replace"))][WARM_UP:]
    except OSError:
        return ""
    if not found:
        return ""
    whole, planning = (statistics.median(column) * 1000 for column in zip(*found, strict=True))
    return f"{whole:,.0f} ms of it in foreachBatch, {planning:,.0f} ms to find the ranges"
