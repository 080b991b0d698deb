"""Measures latency and CPU at a steady rate: a guarantee and Spark's own sink in turn, each warmed up first.

Both stay started. One gets the load while the other is suspended, in windows of seconds, so that both share the state
of the machine and of the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.context import Context, in_turn
from bench.figures import Figure, median, percentiles, ratio
from bench.processes import cpu_seconds
from bench.runs import EXACTLY_ONCE, SPARK_SINK, SPARK_SINK_ASYNC
from bench.stream import RATE, NewJob, Stream, stream

# By the number of partitions: p50 and p99, and CPU, relative to Spark's own sink.
LATENCY_TARGETS = {4: (1.1, 1.2), 32: (0.7, 0.7)}
CPU_TARGETS = {4: 1.1, 32: 0.7}
TRIGGER_S, FASTEST_S = 1, 0


@dataclass(frozen=True)
class Size:
    """Seconds, and the number of windows of each candidate."""

    warm_up: float
    settle: float  # at the start of a window, until batches have their steady size again
    seconds: float  # measured in a window
    windows: int


# A JVM on two processors takes about a minute until its code is compiled.
FULL, QUICK = Size(75, 4, 20, 5), Size(4, 1, 3, 2)


@dataclass(frozen=True)
class Window:
    """What was measured of one candidate in a row."""

    p50: float  # ms
    p99: float
    records: int
    cpu: float  # CPU seconds per second, of the candidate's processes
    brokers_cpu: float  # the same of the brokers


def measure(context: Context) -> list[Figure]:
    """Latency and CPU at a trigger of 1 s."""
    return _measure(context, TRIGGER_S, "trigger of 1 s", (SPARK_SINK,), CPU_TARGETS)


def measure_fastest(context: Context) -> list[Figure]:
    """Latency at the fastest trigger: the next batch starts when the last one has ended.

    Spark's own sink is also measured with asynchronous progress tracking, which it offers for lower latency.
    """
    return _measure(context, FASTEST_S, "fastest trigger", (SPARK_SINK, SPARK_SINK_ASYNC), {})


def _measure(
    context: Context, trigger_s: int, trigger: str, baselines: tuple[str, ...], cpu_targets: Mapping[int, float]
) -> list[Figure]:
    figures: list[Figure] = []
    for partitions in context.cases((4, 32), (4,)):
        title = f"{RATE:,} records/s, {trigger}, {partitions} partitions"
        windows = windows_in_turn(context, (*baselines, context.guarantee), partitions, trigger_s, title)
        is_judged = context.guarantee == EXACTLY_ONCE
        figures += summary(
            title,
            context.guarantee,
            windows,
            LATENCY_TARGETS.get(partitions, (None, None)) if is_judged else (None, None),
            cpu_targets.get(partitions) if is_judged else None,
            with_brokers=bool(context.brokers),
        )
    return figures


def windows_in_turn(
    context: Context,
    names: tuple[str, ...],
    partitions: int,
    trigger_s: int,
    title: str,
    *,
    jobs: Mapping[str, NewJob] | None = None,
) -> dict[str, list[Window]]:
    """Starts and warms up every candidate, and measures them in turn.

    title: of the lines of progress. jobs: of candidates that are not named after a guarantee.
    """
    size = QUICK if context.quick else FULL
    windows: dict[str, list[Window]] = {name: [] for name in names}
    with ExitStack() as stack:
        streams: dict[str, Stream] = {}
        for name in names:
            job = (jobs or {}).get(name)
            streams[name] = stack.enter_context(
                stream(context, name, partitions, title="latency", trigger_s=trigger_s, job=job)
            )
            streams[name].begin()
            time.sleep(size.warm_up)
            streams[name].pause()
            context.report(f"{title}, {name}: warmed up for {size.warm_up:g} s")
        for number in range(context.rounds or size.windows):
            for name in in_turn(names, number):
                windows[name].append(window := _window(streams[name], context.brokers, size))
                context.report(
                    f"{title}, {name}, window {number + 1}: p50 {window.p50:.0f} ms, p99 {window.p99:.0f} ms of "
                    f"{window.records:,} records, CPU {window.cpu:.2f} + {window.brokers_cpu:.2f} of the brokers"
                )
    return windows


def _window(candidate: Stream, brokers: Sequence[int], size: Size) -> Window:
    candidate.load.take()
    candidate.resume()
    time.sleep(size.settle)
    started, cpu, brokers_cpu = time.time(), cpu_seconds([candidate.candidate.pid]), cpu_seconds(brokers)
    time.sleep(size.seconds)
    ended = time.time()
    cpu, brokers_cpu = cpu_seconds([candidate.candidate.pid]) - cpu, cpu_seconds(brokers) - brokers_cpu
    candidate.pause()
    latencies = [d.latency * 1000 for d in candidate.load.take() if started <= d.sent_at < ended]
    p50, p99 = percentiles(latencies)
    return Window(p50, p99, len(latencies), cpu / (ended - started), brokers_cpu / (ended - started))


def summary(
    title: str,
    guarantee: str,
    windows: Mapping[str, Sequence[Window]],
    latency_targets: tuple[float | None, float | None],
    cpu_target: float | None,
    *,
    with_brokers: bool,
) -> list[Figure]:
    """The figures of each candidate, and those of the guarantee relative to each other one, window by window.

    The targets are for the ratios to Spark's own sink as users start it.
    """
    baselines = [name for name in windows if name != guarantee]

    def latency(name: str, quantile: str) -> list[float]:
        return [float(getattr(w, quantile)) for w in windows[name]]

    def cpu(name: str) -> list[float]:
        return [w.cpu + w.brokers_cpu for w in windows[name]]

    figures: list[Figure] = []
    processes = "brokers included" if with_brokers else "without the brokers, which this run did not start"
    for quantile, target in zip(("p50", "p99"), latency_targets, strict=True):
        for name in windows:
            note = f"{sum(w.records for w in windows[name]):,} records in {len(windows[name])} windows"
            figures.append(median(f"{title}: {quantile}, {name}", latency(name, quantile), "ms", note=note))
        figures += [
            ratio(
                f"{title}: {quantile}, {guarantee} ÷ {name}",
                latency(guarantee, quantile),
                latency(name, quantile),
                target if name == SPARK_SINK else None,
                at_least=False,
            )
            for name in baselines
        ]
    for name in windows:
        figures.append(median(f"{title}: CPU per second, {name}", cpu(name), "s", note=processes))
    figures += [
        ratio(
            f"{title}: CPU per second, {guarantee} ÷ {name}",
            cpu(guarantee),
            cpu(name),
            cpu_target if name == SPARK_SINK else None,
            at_least=False,
            note=processes,
        )
        for name in baselines
    ]
    return figures
