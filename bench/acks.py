"""Measures what acknowledgements cost: of a producer alone, and of pipelines under each guarantee that allows them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from ackwright.planning.guarantees import TERMS
from ackwright_stream.jobspec import Guarantee, JobSpec
from bench import workload
from bench.context import Context, in_turn
from bench.figures import Figure, Throughput, median, percentiles, ratio
from bench.latency import Window, windows_in_turn
from bench.processes import UsageMeter
from bench.runs import Copy, our_job, run_job
from bench.stream import RATE
from bench.throughput import WARM_UP, Case, after_warm_up, durations, take_turns

LEVELS = ("0", "1", "all")
PARTITIONS = 4
SIZE = 100  # bytes of a record's value
_TOPIC = {"min.insync.replicas": "2"}
_BATCH, _QUICK_BATCH = 100_000, 25_000  # records
_BATCHES, _QUICK_BATCHES = 8, WARM_UP + 2  # of a copy
_RECORDS, _QUICK_RECORDS = 200_000, 20_000  # that a producer sends in a round
_WAITS, _QUICK_WAITS = 1000, 100  # records in a round that are sent one by one
_ROUNDS, _QUICK_ROUNDS = 5, 1  # of the producer
_TRIGGER_S = 1
_TIMEOUT = 120  # seconds, of a round of the producer


def level(acks: str) -> str:
    """How a level is written in names of figures."""
    return f"acks={acks}"


@dataclass(frozen=True)
class Variant:
    """A guarantee with a level that it allows."""

    guarantee: Guarantee
    acks: str

    def __str__(self) -> str:
        return f"{self.guarantee}, {level(self.acks)}"

    def job(self, copy: Copy, trigger: Mapping[str, Any]) -> JobSpec:
        """The job of this variant that copies one topic."""
        sink = {"kafka": {"topic": copy.sink, "format": "binary", "acks": self.acks}}
        return our_job(copy, self.guarantee, trigger, spec={"sink": sink})


VARIANTS = {str(v): v for v in (Variant(g, a) for g in Guarantee for a in TERMS[g].allowed_acks)}
_REFERENCE = str(Variant(Guarantee.EXACTLY_ONCE, "all"))


@dataclass(frozen=True)
class Sent:
    """One round of a producer."""

    rate: float  # records per second, sent without waiting
    p50: float  # ms from a record to its acknowledgement, one record at a time
    p99: float


def measure(context: Context) -> Iterator[Figure]:
    """A producer alone, then the throughput and the latency of pipelines."""
    yield from producer_figures(_producers(context))
    yield from copy_figures(_copies(context))
    yield from latency_figures(_latencies(context))


def _producers(context: Context) -> dict[str, list[Sent]]:
    rounds: dict[str, list[Sent]] = {level(acks): [] for acks in LEVELS}
    for number in range(context.size(_ROUNDS, _QUICK_ROUNDS, context.rounds)):
        for acks in in_turn(LEVELS, number):
            sent = _send(context, acks)
            rounds[level(acks)].append(sent)
            context.report(
                f"producer, {level(acks)}, round {number + 1}: {sent.rate:,.0f} records/s; one by one: "
                f"p50 {sent.p50:.2f} ms, p99 {sent.p99:.2f} ms"
            )
    return rounds


def _send(context: Context, acks: str) -> Sent:
    """Raises RuntimeError if the brokers do not acknowledge in time."""
    topic = workload.create(context.bootstrap, "acks", PARTITIONS, _TOPIC)
    try:
        shared = {"bootstrap.servers": context.bootstrap, "acks": acks, "enable.idempotence": acks == "all"}
        producer = Producer({**shared, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
        _wait(producer, topic, SIZE, context.size(_WAITS, _QUICK_WAITS) // 10)  # connects to every leader
        records = context.size(_RECORDS, _QUICK_RECORDS)
        rows = [{"value": b"x" * SIZE} for _ in range(1000)]
        started = time.perf_counter()
        for n in range(records // len(rows)):
            if producer.produce_batch(topic, rows, n % PARTITIONS) != len(rows):
                raise RuntimeError(f"the queue of {topic} is full")
            producer.poll(0)
        if producer.flush(_TIMEOUT):
            raise RuntimeError(f"the records of {topic} were not acknowledged within {_TIMEOUT} s")
        rate = records / (time.perf_counter() - started)
        one_by_one = Producer({**shared, "linger.ms": 0})
        _wait(one_by_one, topic, SIZE, PARTITIONS * 5)
        p50, p99 = percentiles(_wait(one_by_one, topic, SIZE, context.size(_WAITS, _QUICK_WAITS)))
    finally:
        workload.delete(context.bootstrap, topic)
    return Sent(rate, p50, p99)


def _wait(producer: Producer, topic: str, size: int, records: int) -> list[float]:
    """Sends records one after the other; returns the ms from each one to its acknowledgement."""
    times: list[float] = []
    for n in range(records):
        started = time.perf_counter()
        producer.produce(topic, b"x" * size, partition=n % PARTITIONS)
        if producer.flush(_TIMEOUT):
            raise RuntimeError(f"a record of {topic} was not acknowledged within {_TIMEOUT} s")
        times.append((time.perf_counter() - started) * 1000)
    return times


def _copies(context: Context) -> dict[str, list[Throughput]]:
    batch = context.size(_BATCH, _QUICK_BATCH)
    case = Case(SIZE, PARTITIONS, max(WARM_UP + 2, context.size(_BATCHES, _QUICK_BATCHES, context.batches)), batch)
    source = workload.create(context.bootstrap, "source", case.partitions)
    try:
        workload.fill(context.bootstrap, source, case.partitions, case.batch * case.batches, case.size)
        runs, _ = take_turns(
            context, tuple(VARIANTS), lambda name, number: _copy(context, case, source, name, number), "copy"
        )
    finally:
        workload.delete(context.bootstrap, source)
    return runs


def _copy(context: Context, case: Case, source: str, name: str, number: int) -> tuple[Throughput, list[float]]:
    variant = VARIANTS[name]
    directory = context.directory / f"acks-{variant.guarantee}-{variant.acks}-{number}"
    with workload.sink(context.bootstrap, case.partitions) as sink, UsageMeter() as meter:
        copy = Copy(context.bootstrap, source, sink, case.batch, context.slots, directory, case.partitions)
        seconds = run_job(variant.job(copy, {"availableNow": True}), directory)
        times = workload.append_times(context.bootstrap, sink, case.batch * case.batches)
    return after_warm_up(case, times, meter), durations(seconds, case.warm_up)


def _latencies(context: Context) -> dict[str, list[Window]]:
    title = f"{RATE:,} records/s, trigger of {_TRIGGER_S} s"
    jobs = {name: variant.job for name, variant in VARIANTS.items()}
    return windows_in_turn(context, tuple(VARIANTS), PARTITIONS, _TRIGGER_S, title, jobs=jobs)


def producer_figures(rounds: Mapping[str, Sequence[Sent]]) -> list[Figure]:
    """The figures of each level, and relative to acks=all round by round."""
    reference = level("all")
    figures: list[Figure] = []
    for quantity, attribute, unit in (
        ("records/s", "rate", "records/s"),
        ("acknowledged, p50", "p50", "ms"),
        ("acknowledged, p99", "p99", "ms"),
    ):
        values = {name: [float(getattr(sent, attribute)) for sent in sents] for name, sents in rounds.items()}
        figures += _compared(f"producer: {quantity}", values, reference, unit)
    return figures


def copy_figures(runs: Mapping[str, Sequence[Throughput]]) -> list[Figure]:
    """The throughput of each guarantee with each level, and relative to exactly-once round by round."""
    rates = {name: [run.rate for run in repeated] for name, repeated in runs.items()}
    return _compared("pipeline: records/s", rates, _REFERENCE, "records/s")


def latency_figures(windows: Mapping[str, Sequence[Window]]) -> list[Figure]:
    """The latency of each guarantee with each level, and relative to exactly-once window by window."""
    figures: list[Figure] = []
    for quantile in ("p50", "p99"):
        values = {name: [float(getattr(w, quantile)) for w in repeated] for name, repeated in windows.items()}
        figures += _compared(f"pipeline: latency, {quantile}", values, _REFERENCE, "ms")
    return figures


def _compared(title: str, values: Mapping[str, Sequence[float]], reference: str, unit: str) -> list[Figure]:
    of_each = [median(f"{title}, {name}", measured, unit) for name, measured in values.items()]
    return of_each + [
        ratio(f"{title}, {name} ÷ {reference}", measured, values[reference])
        for name, measured in values.items()
        if name != reference
    ]
