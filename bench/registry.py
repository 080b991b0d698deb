"""The benchmarks by name, with their targets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench import (
    acks,
    dead_letters,
    formats,
    latency,
    memory,
    postgres,
    resume,
    standby,
    start,
    state,
    stream,
    tables,
    throughput,
    topics,
    transaction,
)
from bench.context import Context
from bench.figures import Figure
from bench.runs import EXACTLY_ONCE, SPARK_SINK


@dataclass(frozen=True)
class Benchmark:
    """A measurement that `python -m bench NAME` runs."""

    name: str
    what: str
    targets: tuple[str, ...]
    measure: Callable[[Context], Iterable[Figure]]


def _latency_targets() -> tuple[str, ...]:
    return tuple(
        f"{partitions} partitions: p50 ≤ {p50:g}, p99 ≤ {p99:g} times that of {SPARK_SINK}"
        for partitions, (p50, p99) in latency.LATENCY_TARGETS.items()
    )


BENCHMARKS = (
    Benchmark(
        "throughput",
        f"records/s of a copy, relative to {SPARK_SINK}: 100 B and 1 KB; 4, 32 and 256 partitions; 100,000 a batch",
        (f"≥ {throughput.TARGETS[EXACTLY_ONCE]:g} in each case",),
        throughput.measure,
    ),
    Benchmark(
        "postgres",
        f"rows/s of a copy into PostgreSQL, relative to {postgres.JDBC_SINK}: 100 B and 1 KB; 4 and 32 partitions",
        (f"≥ {postgres.TARGETS[EXACTLY_ONCE]:g} in each case",),
        postgres.measure,
    ),
    Benchmark(
        "delta",
        f"rows/s of a copy into a Delta table, relative to {tables.DELTA_WRITER}: 100 B and 1 KB; 4 partitions",
        (f"≥ {tables.TARGETS[EXACTLY_ONCE]:g} in each case",),
        tables.measure_delta,
    ),
    Benchmark(
        "iceberg",
        f"rows/s of a copy into an Iceberg table, relative to {tables.ICEBERG_WRITER}: 100 B and 1 KB; 4 partitions",
        (f"≥ {tables.TARGETS[EXACTLY_ONCE]:g} in each case",),
        tables.measure_iceberg,
    ),
    Benchmark(
        "deadletters",
        "records/s of a copy from JSON to JSON with 1 % malformed records, relative to the same pipeline without them",
        (f"≥ {dead_letters.TARGET:g}",),
        dead_letters.measure,
    ),
    Benchmark(
        "avro",
        f"records/s of a copy from Avro to Avro, relative to one from {formats.JSON} to {formats.JSON}",
        (f"≥ {formats.TARGET:g}",),
        formats.measure_avro,
    ),
    Benchmark(
        "jsonschema",
        f"records/s of a copy with format jsonSchema, relative to one from {formats.JSON} to {formats.JSON}",
        ("none: it is reported",),
        formats.measure_json_schema,
    ),
    Benchmark(
        "protobuf",
        f"records/s of a copy with format protobuf, relative to one from {formats.JSON} to {formats.JSON}",
        ("none: it is reported",),
        formats.measure_protobuf,
    ),
    Benchmark(
        "state",
        f"records/s of a windowed count, relative to {SPARK_SINK}: 10 million records, 100,000 keys; memory; "
        "start with a state of 1 GB",
        (f"≥ {state.TARGET:g}",),
        state.measure,
    ),
    Benchmark(
        "latency",
        f"end-to-end latency and CPU at {stream.RATE:,} records/s, 4 and 32 partitions, trigger of 1 s",
        (
            *_latency_targets(),
            *(f"{count} partitions: CPU ≤ {target:g} times" for count, target in latency.CPU_TARGETS.items()),
        ),
        latency.measure,
    ),
    Benchmark(
        "fastest",
        f"end-to-end latency and CPU at {stream.RATE:,} records/s, 4 and 32 partitions, fastest trigger",
        _latency_targets(),
        latency.measure_fastest,
    ),
    Benchmark(
        "acks",
        "acks=0, 1 and all of a producer, and of each guarantee that allows them: records/s and latency",
        ("none: each is reported relative to acks=all, or to exactly-once",),
        acks.measure,
    ),
    Benchmark(
        "start",
        f"start of a query to its first committed batch, Spark up: {start.MANY} relative to {start.FEW} partitions",
        (f"≤ {start.QUERY_TARGET:g}",),
        start.measure_query,
    ),
    Benchmark(
        "launch",
        "launch of a job to its first committed batch, relative to a bare SparkSession with a trivial query",
        (f"≤ {start.LAUNCH_TARGET:g}",),
        start.measure_launch,
    ),
    Benchmark(
        "resume",
        "from SIGKILL of the driver until every partition advances again, without standby",
        ("none: p99 is reported",),
        resume.measure,
    ),
    Benchmark(
        "standby",
        "from SIGKILL of the driver until every partition advances again, with a standby",
        (f"p99 ≤ {standby.TARGET_S:g} s",),
        standby.measure,
    ),
    Benchmark(
        "memory",
        f"memory of Spark's Python workers over {memory.BATCHES:,} tiny batches (--batches)",
        (f"growth over the second half ≤ {memory.TARGET_PERCENT:g} %",),
        memory.measure,
    ),
    Benchmark(
        "transaction",
        "the fixed cost of a lane's transaction",
        (f"≤ {transaction.TARGET_MS:g} ms",),
        transaction.measure,
    ),
    Benchmark(
        "topics",
        f"the time in which the operator reads {topics.TOPICS} topics",
        (f"≤ {topics.TARGET:g} s",),
        topics.measure,
    ),
)
BY_NAME = {benchmark.name: benchmark for benchmark in BENCHMARKS}


def listing() -> str:
    """The benchmarks and their targets, for --list."""
    width = max(map(len, BY_NAME)) + 2
    lines: list[str] = []
    for benchmark in BENCHMARKS:
        lines.append(f"{benchmark.name:<{width}}{benchmark.what}")
        lines += [f"{'':<{width}}  target: {target}" for target in benchmark.targets]
    return "\n".join(lines)
