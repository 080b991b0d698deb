"""What a lane's transaction costs on the path of a batch, beyond producing the same rows without one. No Spark: the lane alone."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from ackwright_stream.connection import settings
from ackwright_stream.lanes import Lanes, Range
from ackwright_stream.positions import Lane
from ackwright_stream.sinks.enqueue import enqueuer
from bench import workload
from bench.figures import Figure, percentiles
from bench.runs import EXACTLY_ONCE, Copy, our_job

ROWS = 10
TARGET_MS = 25.0
_BETWEEN = 0.25  # seconds from one transaction to the next, as from batch to batch; a handle is warm again by then
_WARM_UP = 5


def measure(bootstrap: str, rounds: int, directory: Path, say: Callable[[str], None]) -> list[Figure]:
    """The median over `rounds` of one lane's whole transaction, less that of the same rows produced and flushed (ms)."""
    source = workload.create(bootstrap, "source", 1)
    try:
        with workload.sink(bootstrap, 1) as sink:
            job = our_job(Copy(bootstrap, source, sink, 1000, 1, directory), EXACTLY_ONCE, {"interval": "1s"})
            rows = pa.RecordBatch.from_pydict({"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * 100] * ROWS})

            def write(producer: Producer) -> int:
                put = enqueuer(producer, sink)
                try:
                    return put(rows)
                finally:
                    put.close()

            lane = Lane(source, 0)
            lanes = Lanes(job, 1, {}, job.producer, keep_warm=True)
            lanes.initialise(lanes.fence(lane)[0], lane, 0)
            at = iter(range(rounds + _WARM_UP))

            def transaction() -> None:
                start = next(at)
                lanes.advance(Range(lane, start, start + 1), write)

            plain = Producer(settings(job.cluster, {**job.producer, "transaction.timeout.ms": "60000"}))

            def produce() -> None:
                write(plain)
                if plain.flush(30):
                    raise RuntimeError("the rows were not acknowledged within 30 s")

            with_it = _times(transaction, rounds)
            without = _times(produce, rounds)
    finally:
        workload.delete(bootstrap, source)
    cost = statistics.median(with_it) - statistics.median(without)
    p50, p99 = percentiles(with_it)
    say(f"a lane's transaction: {p50:.1f} ms, the same rows without: {statistics.median(without):.1f} ms")
    note = f"whole lane {p50:.1f} ms (p99 {p99:.1f}), the same {ROWS} rows without {statistics.median(without):.1f} ms; {rounds} times"
    return [Figure("a lane's transaction, median", round(cost, 1), "ms", TARGET_MS, at_least=False, note=note)]


def _times(work: Callable[[], None], rounds: int) -> list[float]:
    found: list[float] = []
    for _ in range(rounds + _WARM_UP):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(_BETWEEN)  # the pace of batches is part of what is measured: librdkafka behaves otherwise right after a commit
    return found[_WARM_UP:]
