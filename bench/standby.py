"""Measures how long a pipeline pauses when its driver is killed while another one stands by."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from ackwright.local.wait import wait_for
from ackwright.sinks.kafka_positions import STANDBY
from bench import workload
from bench.context import Context
from bench.figures import Figure, median, percentiles
from bench.load import Load
from bench.resume import PARTITIONS, QUICK_ROUNDS, ROUNDS, Pause, resumed
from bench.runs import Candidate, Copy, our_job, started
from bench.stream import BATCH, RATE

TARGET_S = 3.0  # p99
_TIMEOUT = 180.0  # seconds
_BEFORE_S = 3.0  # seconds of load before a kill


def measure(context: Context) -> list[Figure]:
    """Seconds from SIGKILL until a record of every partition that was sent after it is delivered.

    The standby then is the driver that is killed next. No other candidate is measured in turn: a driver that is
    suspended meanwhile would be deposed.
    """
    partitions = context.cases((PARTITIONS,), (PARTITIONS,))[0]
    with ExitStack() as stack:
        source = workload.create(context.bootstrap, "source", partitions)
        stack.callback(workload.delete, context.bootstrap, source)
        sink = stack.enter_context(workload.sink(context.bootstrap, partitions))
        load = stack.enter_context(Load(context.bootstrap, source, sink, partitions, RATE))
        directory = context.directory / "standby"
        copy = Copy(context.bootstrap, source, sink, BATCH, context.slots, directory)
        job = replace(our_job(copy, context.guarantee, {"interval": "1s"}), standby=STANDBY)

        def start(number: int) -> Candidate:
            return stack.enter_context(started(job, replace(copy, directory=directory / str(number)), 1, {}))

        pauses = []
        active = start(0)
        wait_for(active.running, "the driver delivers", _TIMEOUT)
        load.resume()
        for number in range(context.size(ROUNDS, QUICK_ROUNDS, context.rounds)):
            standby = start(number + 1)
            wait_for(standby.stands_by, "another driver stands by", _TIMEOUT)
            pauses.append(pause := measured_pause(active, load, partitions))
            context.report(f"standby, kill {number + 1}: {pause.first:.1f} s, {pause.complete:.1f} s")
            active = standby
        load.pause()
    return summary(partitions, context.guarantee, [pause.complete for pause in pauses])


def measured_pause(active: Candidate, load: Load, partitions: int) -> Pause:
    """Kills the driver at any point of a batch, and waits until the other one delivers."""
    load.take()
    time.sleep(_BEFORE_S + random.random())
    killed_at = time.time()
    active.kill()
    times = partial(resumed, load, killed_at)
    wait_for(lambda: len(times()) == partitions, "the standby advances every partition", _TIMEOUT)
    return Pause(min(times().values()) - killed_at, max(times().values()) - killed_at)


def summary(partitions: int, guarantee: str, seconds: list[float]) -> list[Figure]:
    """Median and p99, beside the target."""
    title, note = f"from SIGKILL of the driver until all {partitions} partitions advance", f"{len(seconds)} kills"
    name = f"{title}, with standby: {guarantee}"
    p99 = round(percentiles(seconds)[1], 2)
    return [
        median(f"{name}, median", seconds, "s", note=note),
        Figure(f"{name}, p99", p99, "s", TARGET_S, at_least=False, note=note),
    ]
