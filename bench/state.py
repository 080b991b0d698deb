"""Measures stateful pipelines: exactly-once and Spark's own Kafka sink run the same windowed count, in turn.

Each batch has the records of one window, and writes the counts of an earlier one. Both keep their state in
RocksDB with changelogs. Kafka Streams counts the same records in turn with them, for information.
"""

from __future__ import annotations

import base64
import contextlib
import random
import statistics
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ackwright.local.wait import wait_for
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.jobspec_values import STATE
from bench import kafka_streams, workload
from bench.context import Context, in_turn
from bench.figures import Figure, Throughput, median, ratio, throughput
from bench.kafka_streams import KAFKA_STREAMS
from bench.processes import UsageMeter
from bench.runs import (
    EXACTLY_ONCE,
    SPARK_SINK,
    Copy,
    StatefulQuery,
    our_job,
    run_job,
    run_spark_sink,
    running,
    spark_sink,
)
from bench.throughput import durations

TARGET = 0.8  # the rate of exactly-once relative to that of Spark's own sink
TARGET_START_S = 30.0  # from the launch of a driver with a large state to its first batch
PARTITIONS = 4  # of source and state
WARM_UP = 3  # batches
WATERMARK_S, WINDOW_S = 10, 60
_KEYS, _QUICK_KEYS = 100_000, 5_000
_BATCH, _QUICK_BATCH = 500_000, 25_000  # records
_BATCHES, _QUICK_BATCHES = 20, 7
_ROUNDS, _QUICK_ROUNDS = 3, 1
_STATE_BYTES, _QUICK_STATE_BYTES = 1_000_000_000, 20_000_000
_KEY_BYTES = 1000  # of a key of the large state
_START_S = 1_767_225_600  # 2026-01-01, in seconds since 1970
_LAST_RECORDS = 1000  # that are read when a query with a large state starts again
_TIMEOUT = 300.0  # seconds
_SCHEMA = "id STRING, at TIMESTAMP"
_COUNT = """
    SELECT concat_ws(' ', id, CAST(window.start AS STRING)) AS key, CAST(count(*) AS STRING) AS value
    FROM source GROUP BY id, window(at, '{window}')
"""


@dataclass(frozen=True)
class Case:
    """One windowed count."""

    keys: int
    batch: int  # records of a batch, and of a window
    batches: int

    @property
    def rows(self) -> int:
        """The number of rows of the output: no record passes the end of the last window."""
        return self.keys * (self.batches - 1)

    def __str__(self) -> str:
        return f"{self.batch * self.batches:,} records, {self.keys:,} keys, {self.batch:,} records per batch"

    def value(self, partition: int, n: int) -> bytes:
        """The value of the nth record of a partition."""
        key, window, second = self._record(partition, n)
        return b'{"id":"%d","at":"%s"}' % (key, _time(window, second))

    def record(self, partition: int, n: int) -> kafka_streams.Record:
        """The same for Kafka Streams, whose keys and times are those of the records."""
        key, window, second = self._record(partition, n)
        return b"%d" % key, self.value(partition, n), (_START_S + window * WINDOW_S + second) * 1000

    def _record(self, partition: int, n: int) -> tuple[int, int, int]:
        """The key, the number of the window, and the second in it."""
        window, place = divmod(n, self.batch // PARTITIONS)
        return (place * PARTITIONS + partition) % self.keys, window, place * WINDOW_S * PARTITIONS // self.batch


@dataclass(frozen=True)
class Run:
    """One run of a candidate."""

    rate: Throughput  # in records of the source
    batch_seconds: list[float]
    peaks: Mapping[str, int]  # bytes of memory, as UsageMeter.peaks


def case_of(context: Context) -> Case:
    """The windowed count. The last batch is not counted, because it is shorter."""
    batches = max(WARM_UP + 4, context.size(_BATCHES, _QUICK_BATCHES, context.batches))
    return Case(context.size(_KEYS, _QUICK_KEYS), context.size(_BATCH, _QUICK_BATCH), batches)


def measure(context: Context) -> Iterator[Figure]:
    """The rates and the memory of a windowed count, then the starts with a large state."""
    yield from _count(context, case_of(context))
    yield from _starts(context, context.size(_STATE_BYTES, _QUICK_STATE_BYTES))


def _count(context: Context, case: Case) -> list[Figure]:
    runs: dict[str, list[Run]] = {name: [] for name in (SPARK_SINK, EXACTLY_ONCE, KAFKA_STREAMS)}
    records = case.batch * case.batches
    with _source(context, "counted") as source, _source(context, "timed") as timed:
        workload.fill_with(context.bootstrap, source, PARTITIONS, records, case.value)
        kafka_streams.fill(context.bootstrap, timed, PARTITIONS, records, case.record)
        for number in range(context.size(_ROUNDS, _QUICK_ROUNDS, context.rounds)):
            for name in in_turn(tuple(runs), number):
                run = _run(context, case, timed if name == KAFKA_STREAMS else source, name, number)
                runs[name].append(run)
                context.report(f"windowed count, {name}, round {number + 1}: {run.rate.rate:,.0f} records/s")
    return figures(f"windowed count, {case}, local[{context.slots}]", runs)


def _run(context: Context, case: Case, source: str, name: str, number: int) -> Run:
    directory = context.directory / f"state-{number}-{name.split(maxsplit=1)[0]}"
    with workload.sink(context.bootstrap, PARTITIONS) as sink, UsageMeter() as meter:
        copy = Copy(context.bootstrap, source, sink, case.batch, context.slots, directory, PARTITIONS)
        seconds: dict[int, float] = {}
        if name == KAFKA_STREAMS:
            _run_kafka_streams(context, case, copy)
        elif name == SPARK_SINK:
            run_spark_sink(copy, stateful=_query(f"{WINDOW_S} seconds"))
        else:
            seconds = run_job(_job(copy, f"{WINDOW_S} seconds"), directory)
        times = workload.append_times(context.bootstrap, sink, case.rows)[: -case.keys]
    cpu = meter.between(float(times[WARM_UP * case.keys - 1]), float(times[-1]))
    counted = case.batch * (len(times) // case.keys - WARM_UP)
    of_rows = throughput(times, case.keys, WARM_UP, {kind: used * 1e6 / counted for kind, used in cpu.items()})
    return Run(replace(of_rows, rate=of_rows.rate * case.batch / case.keys), durations(seconds, WARM_UP), meter.peaks)


def _run_kafka_streams(context: Context, case: Case, copy: Copy) -> None:
    """Counts until all counts are written."""
    count = kafka_streams.Count(copy.source, copy.sink, WINDOW_S, WATERMARK_S)
    with kafka_streams.counting(context.bootstrap, count, context.slots, copy.directory):
        wait_for(lambda: _has(context.bootstrap, copy.sink, case.rows), "all counts are written", 4 * _TIMEOUT)


def _has(bootstrap: str, topic: str, records: int) -> bool:
    if workload.offsets(bootstrap, topic) < records:  # reading them takes time from the candidate
        return False
    with contextlib.suppress(RuntimeError):
        return bool(len(workload.append_times(bootstrap, topic, records)))
    return False


def figures(title: str, runs: Mapping[str, list[Run]]) -> list[Figure]:
    """The rate and the peak of the memory of each candidate, and the rates relative to each other."""
    output: list[Figure] = []
    for name, of_name in runs.items():
        cpu = {kind: statistics.median(run.rate.cpu[kind] for run in of_name) for kind in ("jvm", "python")}
        notes = [
            f"{statistics.median(run.rate.cycle_ms for run in of_name):,.0f} ms per batch",
            f"CPU per record: {cpu['jvm']:.1f} µs JVM, {cpu['python']:.1f} µs Python",
        ]
        if seconds := [second for run in of_name for second in run.batch_seconds]:
            notes.insert(1, f"{statistics.median(seconds) * 1000:,.0f} ms in foreachBatch")
        output.append(
            median(f"{title}: {name}", [run.rate.rate for run in of_name], "records/s", note="; ".join(notes))
        )
        for kind, of_kind in (("jvm", "JVM"), ("python", "driver in Python with its workers")):
            peaks = [run.peaks[kind] / 2**20 for run in of_name]
            if any(peaks):
                output.append(median(f"{title}: {name}, peak memory, {of_kind}", peaks, "MiB"))
    rates = {name: [run.rate.rate for run in of_name] for name, of_name in runs.items()}
    relative = [ratio(f"{title}: {EXACTLY_ONCE} ÷ {SPARK_SINK}", rates[EXACTLY_ONCE], rates[SPARK_SINK], TARGET)]
    if KAFKA_STREAMS in rates:
        relative.append(ratio(f"{title}: {EXACTLY_ONCE} ÷ {KAFKA_STREAMS}", rates[EXACTLY_ONCE], rates[KAFKA_STREAMS]))
    return [*output, *relative]


def _starts(context: Context, size: int) -> list[Figure]:
    """From the launch of a driver to its first batch, if its state has so many bytes of keys."""
    keys = size // _KEY_BYTES // PARTITIONS * PARTITIONS
    seconds: dict[str, list[float]] = {name: [] for name in (SPARK_SINK, EXACTLY_ONCE)}
    with _source(context, "large") as source, workload.sink(context.bootstrap, PARTITIONS) as sink:
        workload.fill_with(context.bootstrap, source, PARTITIONS, keys, large_value)
        candidates = {}
        for name in seconds:
            directory = context.directory / f"state-large-{name.split(maxsplit=1)[0]}"
            batch = min(keys, 50_000)
            candidates[name] = _Large(Copy(context.bootstrap, source, sink, batch, context.slots, directory), name)
            candidates[name].fill()
        for number in range(context.size(_ROUNDS, _QUICK_ROUNDS, context.rounds)):
            workload.fill_with(context.bootstrap, source, PARTITIONS, _LAST_RECORDS, large_value)
            for name in in_turn(tuple(seconds), number):
                seconds[name].append(candidates[name].start())
                context.report(f"start with a large state, {name}, round {number + 1}: {seconds[name][-1]:.1f} s")
    title = f"launch of a driver with a state of {size / 1e9:g} GB to its first batch"
    targets = {EXACTLY_ONCE: TARGET_START_S}
    return [
        median(f"{title}: {name}", of_name, "s", targets.get(name), at_least=False) for name, of_name in seconds.items()
    ]


class _Large:
    """A candidate with a large state, which it keeps between its starts."""

    def __init__(self, copy: Copy, name: str) -> None:
        self._copy = copy
        self._job = None if name == SPARK_SINK else _job(copy, "1 day")

    def fill(self) -> None:
        """Reads the source to its current end."""
        if self._job is None:
            run_spark_sink(self._copy, stateful=_query("1 day"))
        else:
            run_job(self._job, self._copy.directory)

    def start(self) -> float:
        """Seconds from the launch to the first batch. The driver is killed then."""
        before, started = self._batches(), time.monotonic()
        with contextlib.ExitStack() as stack:
            if self._job is None:
                trigger = {"processingTime": "0 seconds"}
                ended = stack.enter_context(spark_sink(self._copy, trigger, stateful=_query("1 day"))).poll
            else:
                unbounded = replace(self._job, available_now=False, trigger_interval_ms=0)
                ended = stack.enter_context(running(unbounded, self._copy.directory)).poll

            def has_batch() -> bool:
                if ended() is not None:
                    raise RuntimeError(f"the driver ended with exit code {ended()}: {self._copy.directory}")
                return self._batches() > before

            wait_for(has_batch, "a driver with a large state has delivered a batch", _TIMEOUT)
            return time.monotonic() - started

    def _batches(self) -> int:
        """The last number in Spark's log of commits."""
        logs = self._copy.directory.glob("checkpoint/**/commits/*")
        return max((int(entry.name) for entry in logs if entry.name.isdigit()), default=-1)


def large_value(partition: int, n: int) -> bytes:
    """The nth record of a partition: no other has its key, which does not compress well."""
    key = base64.b64encode(random.Random(f"{partition}/{n}").randbytes(_KEY_BYTES * 3 // 4))
    return b'{"id":"%s","at":"%s"}' % (key, _time(0, 0))


@contextlib.contextmanager
def _source(context: Context, name: str) -> Iterator[str]:
    # Brokers delete records by their times, and those of Kafka Streams are long past.
    source = workload.create(context.bootstrap, name, PARTITIONS, {"retention.ms": "-1"})
    try:
        yield source
    finally:
        workload.delete(context.bootstrap, source)


def _time(window: int, second: int) -> bytes:
    minutes = window * WINDOW_S // 60
    return b"2026-01-01T%02d:%02d:%02dZ" % (minutes // 60, minutes % 60, second)


def _job(copy: Copy, window: str) -> JobSpec:
    spec = {
        "source": {
            "topics": [copy.source],
            "format": "json",
            "schema": _SCHEMA,
            "maxOffsetsPerTrigger": copy.batch,
            "eventTime": {"column": "at", "watermark": f"{WATERMARK_S}s"},
        },
        "transform": {"sql": _COUNT.format(window=window)},
        "state": {"partitions": PARTITIONS, "outputMode": "append"},
        "sink": {"kafka": {"topic": copy.sink, "format": "binary"}},
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    job = our_job(copy, EXACTLY_ONCE, {"availableNow": True}, spec=spec)
    if job.state is None:
        raise RuntimeError("the jobspec has no state; report this")
    return replace(job, state=replace(job.state, checkpoint=str(_checkpoint(copy.directory))))


def _checkpoint(directory: Path) -> Path:
    """Where either candidate has its state: Spark's own sink uses the same name."""
    return directory / "checkpoint"


def _query(window: str) -> StatefulQuery:
    """The same query for Spark's own sink, with the same store of state.

    Version 1 of the checkpoint is Spark's default.
    """
    store = {name: value for name, (value, _) in STATE.items() if "stateStore" in name and "FormatVersion" not in name}
    spark = {**store, "spark.sql.shuffle.partitions": str(PARTITIONS)}
    return StatefulQuery(_SCHEMA, "at", f"{WATERMARK_S} seconds", _COUNT.format(window=window), "append", spark)
