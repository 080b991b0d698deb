"""Measures how long a pipeline pauses when its driver is killed and started again at once, without a standby."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import dataclass

from ackwright.local.wait import wait_for
from bench.context import Context, in_turn
from bench.figures import Figure, median, percentiles, ratio
from bench.load import Load
from bench.runs import SPARK_SINK
from bench.stream import Stream, stream

PARTITIONS = 4
ROUNDS, QUICK_ROUNDS = 20, 1
_TIMEOUT = 180.0  # seconds
_BEFORE_S = 3.0  # seconds of load before a kill


@dataclass(frozen=True)
class Pause:
    """Seconds from the SIGKILL."""

    first: float  # until the first record that was sent after it is delivered
    complete: float  # until such a record of every partition is delivered
    starts: int = 1  # more than one if it ended by itself


def measure(context: Context) -> list[Figure]:
    """Seconds from SIGKILL until a record of every partition that was sent after it is delivered.

    A candidate that ends by itself is started again at once, too.
    """
    partitions = context.cases((PARTITIONS,), (PARTITIONS,))[0]
    names = (SPARK_SINK, context.guarantee)
    pauses: dict[str, list[Pause]] = {name: [] for name in names}
    with ExitStack() as stack:
        streams: dict[str, Stream] = {}
        for name in names:
            streams[name] = stack.enter_context(stream(context, name, partitions, title="resume", trigger_s=1))
            streams[name].begin()
            streams[name].pause()
        for number in range(context.size(ROUNDS, QUICK_ROUNDS, context.rounds)):
            for name in in_turn(names, number):
                pauses[name].append(pause := measured_pause(streams[name], partitions))
                context.report(f"resume, {name}, kill {number + 1}: {pause.first:.1f} s, {pause.complete:.1f} s")
    return summary(partitions, context.guarantee, pauses)


def measured_pause(candidate: Stream, partitions: int) -> Pause:
    """Continues a suspended candidate, kills it seconds later, starts it again, and suspends it when it delivers."""
    candidate.load.take()
    candidate.resume()
    time.sleep(_BEFORE_S + random.random())  # at any point of a batch
    killed_at = time.time()
    candidate.restart()

    starts = 1

    def complete() -> bool:
        nonlocal starts
        # Spark 4.1.1 re-executes the batch that was under way, and then ends with a NullPointerException (SPARK-55271).
        if candidate.candidate.exit_code() is not None:
            starts += 1
            candidate.restart()
        return len(resumed(candidate.load, killed_at)) == partitions

    wait_for(complete, f"{candidate.name} advances every partition again", _TIMEOUT)
    times = resumed(candidate.load, killed_at).values()
    candidate.pause()
    return Pause(min(times) - killed_at, max(times) - killed_at, starts)


def resumed(load: Load, killed_at: float) -> dict[int, float]:
    """When the first record of each partition that was sent after the kill was delivered."""
    times: dict[int, float] = {}
    for delivery in load.deliveries():
        if delivery.sent_at > killed_at:
            times.setdefault(delivery.partition, delivery.received_at)
    return times


def summary(partitions: int, guarantee: str, pauses: dict[str, list[Pause]]) -> list[Figure]:
    """Median and p99 of each candidate, and the guarantee's time relative to that of Spark's own sink."""
    title = f"from SIGKILL of the driver until all {partitions} partitions advance, without standby"
    figures: list[Figure] = []
    complete = {name: [p.complete for p in measured] for name, measured in pauses.items()}
    for name, seconds in complete.items():
        note = f"{len(seconds)} kills, {sum(p.starts for p in pauses[name])} starts"
        figures.append(median(f"{title}: {name}, median", seconds, "s", note=note))
        figures.append(Figure(f"{title}: {name}, p99", round(percentiles(seconds)[1], 2), "s", note=note))
    figures.append(ratio(f"{title}: {guarantee} ÷ {SPARK_SINK}", complete[guarantee], complete[SPARK_SINK]))
    return figures
