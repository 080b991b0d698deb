"""Measures throughput: a guarantee and Spark's own Kafka sink copy the same topic in turn.

Only complete batches after the warm-up count.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from bench import workload
from bench.context import Context, in_turn
from bench.figures import Figure, Throughput, median, ratio, throughput
from bench.processes import UsageMeter
from bench.runs import AT_LEAST_ONCE, EXACTLY_ONCE, SPARK_SINK, Copy, copy_with

TARGETS = {EXACTLY_ONCE: 1.3, AT_LEAST_ONCE: 0.97}  # relative to Spark's own sink, in every case
SIZES, PARTITIONS = (100, 1000), (4, 32, 256)  # bytes of a record's value
WARM_UP = 3  # batches, in which both JVMs compile their code
_BATCH, _QUICK_BATCH = 100_000, 25_000  # records
_BATCHES, _QUICK_BATCHES = 11, WARM_UP + 2  # including the warm-up
# Until then the JIT compiler takes a third of the JVM's time, and differs between two runs of the same copy.
_LONG_WARM_UP, _LONG_BATCHES = 12, 24
_ROUNDS, _QUICK_ROUNDS = 3, 1
_CPU = {"jvm": "JVM", "python": "Python"}


@dataclass(frozen=True)
class Case:
    """One input."""

    size: int  # bytes of a record's value
    partitions: int
    batches: int  # number of batches, including the warm-up
    batch: int  # records per batch
    warm_up: int = WARM_UP  # batches

    def __str__(self) -> str:
        size = f"{self.size // 1000} KB" if self.size >= 1000 else f"{self.size} B"
        return f"{size} × {self.partitions} partitions, {self.batch:,} records per batch"


def cases(context: Context) -> list[Case]:
    """The inputs. A batch has the same number of records of each partition, so it is rounded down to a multiple."""
    batch = context.size(_BATCH, _QUICK_BATCH)
    batches = max(WARM_UP + 2, context.size(_BATCHES, _QUICK_BATCHES, context.batches))
    sizes = SIZES[:1] if context.quick else SIZES
    return [
        Case(size, partitions, batches, batch // partitions * partitions)
        for size in sizes
        for partitions in context.cases(PARTITIONS, PARTITIONS[:1])
    ]


def with_long_warm_up(case: Case, context: Context) -> Case:
    """The case with more batches, and more of them left out; unchanged in a quick run."""
    if context.quick:
        return case
    batches = max(_LONG_WARM_UP + 2, context.batches or _LONG_BATCHES)
    return replace(case, batches=batches, warm_up=_LONG_WARM_UP)


def measure(context: Context) -> Iterator[Figure]:
    """All cases, one after the other."""
    for case in cases(context):
        yield from _measure(context, case)


def _measure(context: Context, case: Case) -> list[Figure]:
    source = workload.create(context.bootstrap, "source", case.partitions)
    try:
        workload.fill(context.bootstrap, source, case.partitions, case.batch * case.batches, case.size)
        runs, seconds = take_turns(
            context,
            (SPARK_SINK, context.guarantee),
            lambda name, number: _run(context, case, source, name, number),
            str(case),
        )
    finally:
        workload.delete(context.bootstrap, source)
    return figures(f"{case}, local[{context.slots}]", context.guarantee, runs, seconds[context.guarantee])


def take_turns(
    context: Context, names: tuple[str, ...], run: Callable[[str, int], tuple[Throughput, list[float]]], title: str
) -> tuple[dict[str, list[Throughput]], dict[str, list[float]]]:
    """Runs each candidate once in each round; returns their runs, and the seconds of their batches.

    run: one run of a candidate, by its name and the number of the round. title: of the lines of progress.
    """
    runs: dict[str, list[Throughput]] = {name: [] for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(context.size(_ROUNDS, _QUICK_ROUNDS, context.rounds)):
        for name in in_turn(names, number):
            measured, of_batches = run(name, number)
            runs[name].append(measured)
            seconds[name] += of_batches
            context.report(f"{title}, {name}, round {number + 1}: {measured.rate:,.0f} records/s")
    return runs, seconds


def _run(context: Context, case: Case, source: str, name: str, number: int) -> tuple[Throughput, list[float]]:
    """One copy, and the seconds of our job's batches after the warm-up, as far as its progress showed them."""
    records = case.batch * case.batches
    directory = context.directory / f"throughput-{case.size}-{case.partitions}-{number}-{name.split(maxsplit=1)[0]}"
    with workload.sink(context.bootstrap, case.partitions) as sink, UsageMeter() as meter:
        seconds = copy_with(
            name, Copy(context.bootstrap, source, sink, case.batch, context.slots, directory, case.partitions)
        )
        times = workload.append_times(context.bootstrap, sink, records)
    return after_warm_up(case, times, meter), durations(seconds, case.warm_up)


def after_warm_up(
    case: Case, times: npt.NDArray[np.int64], meter: UsageMeter, other_cpu: Mapping[str, float] | None = None
) -> Throughput:
    """The rate, and the CPU time per record, of the batches after the warm-up.

    times: in ms, sorted, of each record. other_cpu: µs per record, by kind, that the meter does not see.
    """
    warm_up = case.warm_up * case.batch
    cpu = meter.between(float(times[warm_up - 1]), float(times[-1]))
    per_record = {kind: used * 1e6 / (len(times) - warm_up) for kind, used in cpu.items()}
    return throughput(times, case.batch, case.warm_up, {**per_record, **(other_cpu or {})})


def durations(seconds: Mapping[int, float], warm_up: int) -> list[float]:
    """Those of the batches after the warm-up. seconds: by batch; warm_up: batches."""
    return [duration for batch, duration in seconds.items() if batch >= warm_up]


def figures(
    title: str,
    guarantee: str,
    runs: Mapping[str, Sequence[Throughput]],
    batch_seconds: Sequence[float],
    targets: Mapping[str, float] = TARGETS,
) -> list[Figure]:
    """The rate of each candidate, and of the guarantee relative to each other candidate, round by round.

    batch_seconds: of our job's batches, from the start of foreachBatch. targets: of each guarantee, relative to the
    first candidate.
    """
    output: list[Figure] = []
    for name, repeated in runs.items():
        kinds = dict.fromkeys(("jvm", "python", *repeated[0].cpu))
        cpu = {kind: statistics.median(run.cpu.get(kind, 0.0) for run in repeated) for kind in kinds}
        notes = [
            f"{statistics.median(run.cycle_ms for run in repeated):,.0f} ms per batch",
            f"CPU per record: {', '.join(f'{used:.1f} µs {_CPU.get(kind, kind)}' for kind, used in cpu.items())}",
        ]
        if name == guarantee and batch_seconds:
            notes.insert(1, f"{statistics.median(batch_seconds) * 1000:,.0f} ms in foreachBatch")
        output.append(median(f"{title}: {name}", [run.rate for run in repeated], "records/s", note="; ".join(notes)))
    for number, baseline in enumerate(name for name in runs if name != guarantee):
        output.append(
            ratio(
                f"{title}: {guarantee} ÷ {baseline}",
                [run.rate for run in runs[guarantee]],
                [run.rate for run in runs[baseline]],
                targets.get(guarantee) if number == 0 else None,
            )
        )
    return output
