"""Measures end-to-end latency at a steady rate.

Each record's value is the time at which it was sent; a read_committed consumer compares it with the clock.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from ackwright.local.wait import wait_for
from ackwright_stream.reports import ProgressReport, State
from bench import workload
from bench.figures import Figure, percentiles
from bench.runs import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    SPARK_LOG,
    SPARK_SINK,
    Copy,
    our_job,
    running,
    spark_sink,
)

RATE = 2000  # records/s
PARTITIONS = 4
_SEND_INTERVAL = 0.02  # seconds; each send goes to one partition in turn, like a producer that fills batches (KIP-480)
_START_TIMEOUT = 120.0  # seconds until the job runs, and again until it has delivered its first record
CASES = (
    (EXACTLY_ONCE, "1s"),
    (EXACTLY_ONCE, "0s"),
    (AT_LEAST_ONCE, "1s"),
    (AT_MOST_ONCE, "1s"),
    (SPARK_SINK, "1s"),
    (SPARK_SINK, "0s"),
)
TARGETS = {(EXACTLY_ONCE, "1s"): (600.0, 1200.0), (EXACTLY_ONCE, "0s"): (200.0, 500.0)}  # p50, p99 in ms


@dataclass
class SteadyLoad:
    """A producer at a constant rate and a consumer of the sink."""

    latencies: list[tuple[float, float]] = field(default_factory=list)  # (send time, latency) in seconds


@contextmanager
def steady_load(bootstrap: str, source: str, sink: str, rate: int = RATE) -> Iterator[SteadyLoad]:
    """Produces `rate` records/s to the source and reads the sink, until the context ends."""
    load = SteadyLoad()
    end = threading.Event()
    threads = [
        threading.Thread(target=_send, args=(bootstrap, source, rate, end), daemon=True),
        threading.Thread(target=_read, args=(bootstrap, sink, load, end), daemon=True),
    ]
    for t in threads:
        t.start()
    try:
        yield load
    finally:
        end.set()
        for t in threads:
            t.join(30)


def measure(
    bootstrap: str,
    variant: str,
    trigger: str,
    directory: Path,
    report: Callable[[str], None],
    *,
    warm_up: float,
    seconds: float,
    slots: int = PARTITIONS,  # a lane mostly waits for brokers, and a lane without a slot would wait for another lane
) -> list[Figure]:
    """The p50 and p99 latency (ms) over `seconds`, after `warm_up` seconds from the first delivered record on."""
    source = workload.create(bootstrap, "source", PARTITIONS)
    try:
        with workload.sink(bootstrap, PARTITIONS) as sink:
            copy = Copy(
                bootstrap, source, sink, 100_000, slots, directory / f"latency-{variant.split(maxsplit=1)[0]}-{trigger}"
            )
            with _started(copy, variant, trigger) as is_running:
                # A backlog from before the start would distort the measurement for a long time.
                wait_for(is_running, "the job runs", _START_TIMEOUT)
                with steady_load(bootstrap, source, sink) as load:
                    wait_for(
                        lambda: is_running() and bool(load.latencies), "the first record is delivered", _START_TIMEOUT
                    )
                    first = time.time()
                    threading.Event().wait(warm_up + seconds)
                latencies = [
                    latency * 1000
                    for sent_at, latency in list(load.latencies)
                    if first + warm_up <= sent_at < first + warm_up + seconds
                ]
    finally:
        workload.delete(bootstrap, source)
    p50, p99 = percentiles(latencies)
    report(f"latency, {variant}, trigger {trigger}: p50 {p50:.0f} ms, p99 {p99:.0f} ms of {len(latencies)} records")
    note = (
        f"{len(latencies):,} records in {seconds:.0f} s, {PARTITIONS} partitions in {slots} slots, "
        f"longest {max(latencies):,.0f} ms"
    )
    title = f"latency at {RATE:,} records/s, {variant}, trigger {trigger}"
    targets = TARGETS.get((variant, trigger), (None, None))
    return [
        Figure(f"{title}: p50", round(p50), "ms", targets[0], at_least=False, note=note),
        Figure(f"{title}: p99", round(p99), "ms", targets[1], at_least=False),
    ]


@contextmanager
def _started(copy: Copy, variant: str, trigger: str) -> Iterator[Callable[[], bool]]:
    """Starts the copy; yields a function that returns whether it runs, and raises RuntimeError once it has ended."""
    if variant == SPARK_SINK:
        with spark_sink(copy, {"processingTime": f"{int(trigger.removesuffix('s'))} seconds"}) as process:
            yield lambda: _is_alive(process.poll(), lambda: copy.directory / SPARK_LOG)
        return
    with running(our_job(copy, variant, {"interval": trigger}), copy.directory, verbose=True) as job:
        yield lambda: _is_alive(job.poll(), job.failure) and _is_running(job.progress())
        job.drain()
        job.wait(60)


def _is_running(report: ProgressReport | None) -> bool:
    return report is not None and report.state is State.RUNNING


def _is_alive(exit_code: int | None, cause: Callable[[], object]) -> bool:
    if exit_code is not None:
        raise RuntimeError(f"the job ended with exit code {exit_code}: {cause()}")
    return True


def _send(bootstrap: str, topic: str, rate: int, end: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    started_at, sent = time.monotonic(), 0
    for partition in itertools.cycle(range(PARTITIONS)):
        if end.wait(_SEND_INTERVAL):
            break
        due = int((time.monotonic() - started_at) * rate)
        for n in range(sent, due):
            producer.produce(topic, repr(time.time()).encode(), b"%d" % n, partition=partition)
        sent = due
        producer.poll(0)
    producer.flush(10)


def _read(bootstrap: str, topic: str, load: SteadyLoad, end: threading.Event) -> None:
    """Reads with long fetches, which brokers answer as soon as there are records.

    Fetching every 10 ms instead used a sixth of the brokers' processor and delivered nothing earlier.
    """
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        while not end.is_set():
            records = consumer.consume(500, 0.01)
            now = time.time()
            for m in records:
                value = m.value()
                if not m.error() and value is not None:
                    sent_at = float(value)
                    load.latencies.append((sent_at, now - sent_at))
    finally:
        consumer.close()
