"""End-to-end latency at a steady rate: each value carries the time at which it was sent, a read_committed reader looks at the clock."""

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
_TICK = 0.02  # seconds between two sends, each to one partition in turn, as producers do that fill batches (KIP-480)
_START = 120.0  # seconds until the job runs, and until it has delivered its first record
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
class Steady:
    """A feed of RATE records/s and a reader of the sink. seen: (when sent, how long it took), seconds."""

    seen: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def steady(bootstrap: str, source: str, sink: str, rate: int = RATE) -> Iterator[Steady]:
    found = Steady()
    end = threading.Event()
    threads = [
        threading.Thread(target=_send, args=(bootstrap, source, rate, end), daemon=True),
        threading.Thread(target=_read, args=(bootstrap, sink, found, end), daemon=True),
    ]
    for t in threads:
        t.start()
    try:
        yield found
    finally:
        end.set()
        for t in threads:
            t.join(30)


def measure(
    bootstrap: str,
    variant: str,
    trigger: str,
    directory: Path,
    say: Callable[[str], None],
    *,
    warm_up: float,
    seconds: float,
    slots: int = PARTITIONS,  # a lane waits for brokers most of its time, and a lane without a slot for another lane
) -> list[Figure]:
    """p50 and p99 (ms) over `seconds`, after `warm_up` seconds that begin with the first record that came through."""
    source = workload.create(bootstrap, "source", PARTITIONS)
    try:
        with workload.sink(bootstrap, PARTITIONS) as sink:
            copy = Copy(
                bootstrap, source, sink, 100_000, slots, directory / f"latency-{variant.split(maxsplit=1)[0]}-{trigger}"
            )
            with _started(copy, variant, trigger) as runs:
                wait_for(runs, "it runs", _START)  # what piled up before would be measured for long
                with steady(bootstrap, source, sink) as found:
                    wait_for(lambda: runs() and bool(found.seen), "the first record is delivered", _START)
                    first = time.time()
                    threading.Event().wait(warm_up + seconds)
                latencies = [
                    took * 1000
                    for sent, took in list(found.seen)
                    if first + warm_up <= sent < first + warm_up + seconds
                ]
    finally:
        workload.delete(bootstrap, source)
    p50, p99 = percentiles(latencies)
    say(f"latency, {variant}, trigger {trigger}: p50 {p50:.0f} ms, p99 {p99:.0f} ms of {len(latencies)} records")
    note = f"{len(latencies):,} records in {seconds:.0f} s, {PARTITIONS} partitions in {slots} slots, longest {max(latencies):,.0f} ms"
    title = f"latency at {RATE:,} records/s, {variant}, trigger {trigger}"
    targets = TARGETS.get((variant, trigger), (None, None))
    return [
        Figure(f"{title}: p50", round(p50), "ms", targets[0], at_least=False, note=note),
        Figure(f"{title}: p99", round(p99), "ms", targets[1], at_least=False),
    ]


@contextmanager
def _started(copy: Copy, variant: str, trigger: str) -> Iterator[Callable[[], bool]]:
    """Yields whether it runs, which raises RuntimeError once it has ended."""
    if variant == SPARK_SINK:
        with spark_sink(copy, {"processingTime": f"{int(trigger.removesuffix('s'))} seconds"}) as process:
            yield lambda: _alive(process.poll(), lambda: copy.directory / SPARK_LOG)
        return
    with running(our_job(copy, variant, {"interval": trigger}), copy.directory, verbose=True) as job:
        yield lambda: _alive(job.poll(), job.failure) and _is_running(job.progress())
        job.drain()
        job.wait(60)


def _is_running(report: ProgressReport | None) -> bool:
    return report is not None and report.state is State.RUNNING


def _alive(code: int | None, cause: Callable[[], object]) -> bool:
    if code is not None:
        raise RuntimeError(f"it ended with {code}: {cause()}")
    return True


def _send(bootstrap: str, topic: str, rate: int, end: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    began, sent = time.monotonic(), 0
    for partition in itertools.cycle(range(PARTITIONS)):
        if end.wait(_TICK):
            break
        due = int((time.monotonic() - began) * rate)
        for n in range(sent, due):
            producer.produce(topic, repr(time.time()).encode(), b"%d" % n, partition=partition)
        sent = due
        producer.poll(0)
    producer.flush(10)


def _read(bootstrap: str, topic: str, found: Steady, end: threading.Event) -> None:
    """As any consumer reads: brokers answer a waiting fetch as soon as there is something. To ask every 10 ms instead took a sixth of a
    processor from the three brokers, and told nothing earlier."""
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
                    sent = float(value)
                    found.seen.append((sent, now - sent))
    finally:
        consumer.close()
