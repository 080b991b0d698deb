"""Measures what a lane's transaction adds to a batch, compared with producing the same rows without one. Runs no Spark.

The brokers are warmed up first, because their JVM compiles code only under load: a transaction on newly started brokers
takes four times as long. A transaction uses 36 ms of their processors after 2,000 transactions, and 23 ms after 10,000.
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

from ackwright_stream.cluster import Cluster
from ackwright_stream.connection import settings
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Lanes
from ackwright_stream.ownership import take
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.kafka.enqueue import enqueuer
from ackwright_stream.sinks.kafka.sink import for_driver, for_tasks
from bench import workload
from bench.context import Context
from bench.figures import Figure, percentiles
from bench.runs import EXACTLY_ONCE, Copy, our_job

ROWS = 10
TARGET_MS = 25.0
PAUSES = (1.0, 0.25)  # seconds between two transactions, as between batches; enough to prepare the next producer
_UNCOUNTED = 5  # first transactions of a series
_WARM_UP_LANES = 4
_BATCH = pa.RecordBatch.from_pydict({"key": [b"%d" % n for n in range(ROWS)], "value": [b"x" * 100] * ROWS})


@dataclass(frozen=True)
class Pipeline:
    """The lanes of a job, without Spark."""

    job: JobSpec
    sink: str
    lanes: Lanes

    def write(self, producer: Producer) -> int:
        enqueue = enqueuer(producer, self.sink)
        try:
            return enqueue(_BATCH)
        finally:
            enqueue.close()

    def transactions(self, partition: int) -> Callable[[], None]:
        """A function that executes one complete transaction of a task with the partition's lane per call."""
        lane = Lane(self.job.source.topics[0], partition)
        offset = 0

        def transaction() -> None:
            nonlocal offset
            self.lanes.advance(partition, [Range(lane, offset, offset + 1)], [_BATCH])
            offset += 1

        return transaction


@contextmanager
def _pipeline(bootstrap: str, partitions: int, directory: Path) -> Iterator[Pipeline]:
    source = workload.create(bootstrap, "source", partitions)
    try:
        with workload.sink(bootstrap, partitions) as sink:
            job = our_job(Copy(bootstrap, source, sink, 1000, 1, directory), EXACTLY_ONCE, {"interval": "1s"})
            cluster = Cluster(job)
            owned = take(job, cluster, for_driver(job, cluster))
            tasks = for_tasks(job, transactional=True)
            yield Pipeline(job, sink, Lanes(job, tasks, owned.lanes.membership, owned.driver, owned.topic_ids))
    finally:
        workload.delete(bootstrap, source)


def warm_up(context: Context, transactions: int) -> None:
    """Executes a number of transactions on parallel lanes, without a pause."""
    started_at = time.monotonic()
    with _pipeline(context.bootstrap, _WARM_UP_LANES, context.directory) as pipeline:
        lanes = [pipeline.transactions(n) for n in range(_WARM_UP_LANES)]

        def run(transaction: Callable[[], None]) -> None:
            for _ in range(transactions // _WARM_UP_LANES):
                transaction()

        with ThreadPoolExecutor(_WARM_UP_LANES) as pool:
            list(pool.map(run, lanes))
    context.report(f"warmed up the brokers with {transactions:,} transactions in {time.monotonic() - started_at:.0f} s")


def measure(context: Context) -> list[Figure]:
    """For each pause: the median of a lane's transaction minus that of producing and flushing the same rows (ms)."""
    rounds = context.size(60, 15, context.rounds)
    with _pipeline(context.bootstrap, 1, context.directory) as pipeline:
        transaction = pipeline.transactions(0)
        plain = Producer(settings(pipeline.job.cluster, pipeline.job.producer))

        def produce() -> None:
            pipeline.write(plain)
            if plain.flush(30):
                raise RuntimeError("the rows were not acknowledged within 30 s")

        return [
            figure(pause, _durations(transaction, rounds, pause), _durations(produce, rounds, pause), context.report)
            for pause in PAUSES
        ]


def figure(pause: float, with_transaction: list[float], without: list[float], report: Callable[[str], None]) -> Figure:
    """The cost of a transaction (ms). pause: seconds since the last one. The durations are in ms."""
    p50, p99 = percentiles(with_transaction)
    baseline = statistics.median(without)
    title = f"a lane's transaction, {pause:g} s after the previous one, median"
    report(f"{title}: {p50:.1f} ms, the same rows without a transaction: {baseline:.1f} ms")
    note = (
        f"lane {p50:.1f} ms (p99 {p99:.1f}), the same {ROWS} rows without a transaction {baseline:.1f} ms; "
        f"{len(with_transaction)} rounds"
    )
    return Figure(title, round(p50 - baseline, 1), "ms", TARGET_MS, at_least=False, note=note)


def _durations(work: Callable[[], None], rounds: int, pause: float) -> list[float]:
    durations: list[float] = []
    for _ in range(rounds + _UNCOUNTED):
        started_at = time.perf_counter()
        work()
        durations.append((time.perf_counter() - started_at) * 1000)
        time.sleep(pause)  # as between batches: directly after a commit librdkafka behaves differently
    return durations[_UNCOUNTED:]
