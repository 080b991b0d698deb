"""Measures throughput: the three guarantees and Spark's own Kafka sink copy the same topic, one after the other.

Only complete batches after the warm-up count.
"""

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
WARM_UP = 3  # batches, in which both JVMs compile their code
_BATCH_LINE = re.compile(r"batch \d+: \d+ lanes, \S+ records, ([\d.]+) s \(([\d.]+) s to find the ranges\)")


@dataclass(frozen=True)
class Case:
    """One input."""

    size: int  # bytes of a record's value
    partitions: int
    batches: int  # number of batches, including the warm-up
    batch: int  # records per batch

    def __str__(self) -> str:
        size = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        return f"{size} × {self.partitions} partitions, {self.batch:,} records per batch"


def measure(
    bootstrap: str,
    case: Case,
    directory: Path,
    report: Callable[[str], None],
    *,
    slots: int,
    rounds: int,
    variants: Sequence[str] = VARIANTS,
) -> list[Figure]:
    """Runs all variants, `rounds` times, on the same source topic."""
    records = case.batch * case.batches
    source = workload.create(bootstrap, "source", case.partitions)
    runs: dict[str, list[Throughput]] = {v: [] for v in variants}
    parts: dict[str, str] = {}
    try:
        workload.fill(bootstrap, source, case.partitions, records, case.size)
        for number in range(rounds):
            # Every other round reverses the order, so that drift (temperature, disk usage) favours no variant.
            for variant in variants if number % 2 == 0 else tuple(reversed(variants)):
                run_directory = (
                    directory / f"{case.size}-{case.partitions}-{case.batch}-{slots}-{number}-{variant.split()[0]}"
                )
                with workload.sink(bootstrap, case.partitions) as sink, CpuMeter() as meter:
                    copy_with(variant, Copy(bootstrap, source, sink, case.batch, slots, run_directory))
                    times = workload.append_times(bootstrap, sink, records)
                measured = records - WARM_UP * case.batch
                cpu = meter.between(float(times[WARM_UP * case.batch - 1]), float(times[-1]))
                per_million = {name: seconds * 1e6 / measured for name, seconds in cpu.items()}
                runs[variant].append(throughput(times, case.batch, WARM_UP, per_million))
                parts[variant] = _batch_breakdown(run_directory / "job.log")
                rate = f"{runs[variant][-1].rate:,.0f} records/s"
                report(f"{case}, {variant}, round {number + 1}: {rate} {parts[variant]}")
    finally:
        workload.delete(bootstrap, source)
    return figures(f"{case}, local[{slots}]", runs, parts)


def figures(title: str, runs: dict[str, list[Throughput]], parts: dict[str, str]) -> list[Figure]:
    """The rate of each variant, and of our guarantees relative to Spark's own sink.

    parts: by variant, how the time of a batch splits.
    """
    output: list[Figure] = []
    medians = {variant: statistics.median(run.rate for run in repeated) for variant, repeated in runs.items()}
    for variant, repeated in runs.items():
        cpu = {name: statistics.median(run.cpu.get(name, 0.0) for run in repeated) for name in ("jvm", "python")}
        notes = [
            spread([run.rate for run in repeated]),
            f"{statistics.median(run.cycle_ms for run in repeated):,.0f} ms per batch",
            f"CPU per record: {cpu['jvm']:.1f} µs JVM, {cpu['python']:.1f} µs Python",
            parts.get(variant, ""),
        ]
        note = "; ".join(n for n in notes if n)
        output.append(Figure(f"{title}: {variant}", medians[variant], "records/s", note=note))
    for variant, target in TARGETS.items():
        if variant in runs and SPARK_SINK in runs:
            ratio = medians[variant] / medians[SPARK_SINK]
            output.append(Figure(f"{title}: {variant} ÷ {SPARK_SINK}", round(ratio, 3), "", target))
    return output


def _batch_breakdown(log: Path) -> str:
    """The median time of foreachBatch and of finding the ranges, from our job's debug log; "" without such lines."""
    try:
        batches = [(float(a), float(b)) for a, b in _BATCH_LINE.findall(log.read_text(errors="replace"))][WARM_UP:]
    except OSError:
        return ""
    if not batches:
        return ""
    total, ranges = (statistics.median(column) * 1000 for column in zip(*batches, strict=True))
    return f"{total:,.0f} ms in foreachBatch, of which {ranges:,.0f} ms to find the ranges"
