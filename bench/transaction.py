"""What a lane's transaction costs on the path of a batch, beyond producing the same rows without one. No Spark: the lane alone.

Brokers get fast only with work, for they run on a JVM: on some that had just been started the same transaction took four times as long.
So they are warmed up first, as brokers are that have been running for a while: after 2,000 transactions one took 36 ms of their processors,
after 10,000 it was 23.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer

from ackwright_stream.connection import settings
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.enqueue import enqueuer
from ackwright_stream.sinks.kafka.sink import for_tasks
from bench import workload
from bench.figures import Figure, percentiles
from bench.runs import EXACTLY_ONCE, Copy, our_job

ROWS = 10
TARGET_MS = 25.0
PAUSES = (1.0, 0.25)  # seconds from one transaction to the next, as from batch to batch; a handle is warm again by then
_SETTLE = 5  # transactions that are not counted
_WARM_UP_LANES = 4
_BATCH = pa.RecordBatch.from_pydict({"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * 100] * ROWS})


@dataclass(frozen=True)
class Pipeline:
    """Lanes of a job's, from one partition each into one topic."""

    job: JobSpec
    sink: str
    lanes: Lanes

    def write(self, producer: Producer) -> int:
        put = enqueuer(producer, self.sink)
        try:
            return put(_BATCH)
        finally:
            put.close()

    def transactions(self, partition: int) -> Callable[[], None]:
        """Each call is one whole transaction of that lane."""
        lane = Lane(self.job.source.topics[0], partition)
        self.lanes.initialise(self.lanes.fence(lane)[0], lane, 0)
        at = 0

        def transaction() -> None:
            nonlocal at
            self.lanes.advance(Range(lane, at, at + 1), [_BATCH])
            at += 1

        return transaction


@contextmanager
def _pipeline(bootstrap: str, partitions: int, directory: Path) -> Iterator[Pipeline]:
    source = workload.create(bootstrap, "source", partitions)
    try:
        with workload.sink(bootstrap, partitions) as sink:
            job = our_job(Copy(bootstrap, source, sink, 1000, 1, directory), EXACTLY_ONCE, {"interval": "1s"})
            yield Pipeline(job, sink, Lanes(job, for_tasks(job, transactional=True), partitions, {}))
    finally:
        workload.delete(bootstrap, source)


def warm_up(bootstrap: str, transactions: int, directory: Path, say: Callable[[str], None]) -> None:
    """So many transactions, of lanes side by side, without a pause."""
    began = time.monotonic()
    with _pipeline(bootstrap, _WARM_UP_LANES, directory) as pipeline:
        lanes = [pipeline.transactions(n) for n in range(_WARM_UP_LANES)]

        def run(transaction: Callable[[], None]) -> None:
            for _ in range(transactions // _WARM_UP_LANES):
                transaction()

        with ThreadPoolExecutor(_WARM_UP_LANES) as pool:
            list(pool.map(run, lanes))
    say(f"warmed the brokers up by {transactions:,} transactions in {time.monotonic() - began:.0f} s")


def measure(bootstrap: str, rounds: int, directory: Path, say: Callable[[str], None]) -> list[Figure]:
    """For each pause the median over `rounds` of one lane's whole transaction, less that of the same rows produced and flushed (ms)."""
    with _pipeline(bootstrap, 1, directory) as pipeline:
        transaction = pipeline.transactions(0)
        plain = Producer(settings(pipeline.job.cluster, pipeline.job.producer))

        def produce() -> None:
            pipeline.write(plain)
            if plain.flush(30):
                raise RuntimeError("the rows were not acknowledged within 30 s")

        return [
            _figure(pause, _times(transaction, rounds, pause), _times(produce, rounds, pause), say) for pause in PAUSES
        ]


def _figure(pause: float, with_it: list[float], without: list[float], say: Callable[[str], None]) -> Figure:
    p50, p99 = percentiles(with_it)
    same = statistics.median(without)
    title = f"a lane's transaction, {pause:g} s after the last one, median"
    say(f"{title}: {p50:.1f} ms, the same rows without: {same:.1f} ms")
    note = f"whole lane {p50:.1f} ms (p99 {p99:.1f}), the same {ROWS} rows without {same:.1f} ms; {len(with_it)} times"
    return Figure(title, round(p50 - same, 1), "ms", TARGET_MS, at_least=False, note=note)


def _times(work: Callable[[], None], rounds: int, pause: float) -> list[float]:
    found: list[float] = []
    for _ in range(rounds + _SETTLE):
        began = time.perf_counter()
        work()
        found.append((time.perf_counter() - began) * 1000)
        time.sleep(
            pause
        )  # the pace of batches is part of what is measured: librdkafka behaves otherwise right after a commit
    return found[_SETTLE:]
