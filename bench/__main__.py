"""`python -m bench`: measures what the guarantees cost, on this machine with real brokers.

throughput   each guarantee and Spark's own Kafka sink, alternately, on the same input
latency      end to end at 2,000 records/s: each guarantee and Spark's own Kafka sink at a trigger of 1 s, exactly-once
             and Spark's sink also at the fastest trigger
transaction  the fixed cost of a lane's transaction
memory       the memory of Spark's Python workers over many batches
topics       the time in which the operator reads 200 topics

Exit code 1 if a figure missed its target. Run nothing else on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.watch import Watch
from bench import latency, memory, report, throughput, topics, transaction
from bench.figures import Figure
from bench.throughput import WARM_UP, Case

_JAVA_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC")  # these brokers run long enough for the C2 compiler
KINDS = ("throughput", "latency", "transaction", "memory", "topics")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer records and cases, shorter runs: at most half an hour"
    )
    parser.add_argument("--records", type=int, help="records of a throughput run, including the warm-up")
    parser.add_argument("--batch", type=int, default=100_000, help="records per batch (maxOffsetsPerTrigger)")
    parser.add_argument("--rounds", type=int, default=2, help="how often each variant runs")
    parser.add_argument(
        "--slots",
        type=int,
        default=2,
        help="parallel tasks: n in local[n], for every variant; latency uses one slot per partition",
    )
    parser.add_argument("--only", action="append", choices=KINDS, help="measure only this; may be repeated")
    parser.add_argument("--bootstrap-servers", help="three or more existing brokers; default: embedded brokers")
    parser.add_argument("--directory", type=Path, help="the directory for the logs of the runs, which is kept")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def cases(quick: bool, records: int | None, batch: int) -> list[Case]:
    """The throughput cases: small and large records, few and many partitions, and large batches of many partitions.

    quick, and `records` unless None, leave out the large batches. Raises ValueError if `records` is too small.
    """
    batches = (records or (6 if quick else 11) * batch) // batch
    if batches < WARM_UP + 2:
        raise ValueError(
            f"{batches} batch{'es' if batches != 1 else ''} of {batch} records are too few: {WARM_UP} are for warming "
            "up, and at least two are measured; raise --records or lower --batch"
        )
    shapes = ((100, 4), (1000, 4)) if quick else ((100, 4), (100, 32), (1000, 4), (1000, 32))
    small_batches = [Case(size, partitions, batches, batch) for size, partitions in shapes]
    # One transaction per lane: its cost is visible in small batches of many lanes, and not in large batches.
    return small_batches if quick or records else [*small_batches, Case(100, 32, WARM_UP + 2, 5 * batch)]


def measure(bootstrap: str, options: argparse.Namespace, directory: Path) -> list[Figure]:
    """Runs the selected measurements and returns their figures."""
    kinds = options.only or KINDS
    figures: list[Figure] = []
    if {"transaction", "throughput", "latency"} & set(kinds):
        transaction.warm_up(bootstrap, 1000 if options.quick else 10_000, directory, _report)
    if "transaction" in kinds:
        figures += transaction.measure(bootstrap, 20 if options.quick else 60, directory, _report)
    if "throughput" in kinds:
        for case in cases(options.quick, options.records, options.batch):
            figures += throughput.measure(
                bootstrap, case, directory, _report, slots=options.slots, rounds=options.rounds
            )
    if "latency" in kinds:
        # A JVM on two processors takes about a minute until its code is compiled.
        warm_up, seconds = (60, 20) if options.quick else (120, 60)
        for variant, trigger in latency.CASES:
            figures += latency.measure(
                bootstrap, variant, trigger, directory, _report, warm_up=warm_up, seconds=seconds
            )
    if "memory" in kinds:
        figures += memory.measure(bootstrap, 60 if options.quick else 300, options.slots, directory, _report)
    if "topics" in kinds:
        figures += topics.measure(bootstrap, 5 if options.quick else 20, _report)
    return figures


def main() -> int:
    options = arguments()
    try:
        cases(options.quick, options.records, options.batch)
    except ValueError as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    setting = report.setting(os.cpu_count(), options.slots, os.getloadavg())
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(tempfile.mkdtemp(prefix="ackwright-bench-"))
        if options.directory is None:
            stack.enter_context(Watch(remove=(directory,)))  # removes it even if this process is killed
        directory.mkdir(parents=True, exist_ok=True)
        bootstrap = (
            options.bootstrap_servers or stack.enter_context(EmbeddedKafka(java_flags=_JAVA_FLAGS)).bootstrap_servers
        )
        figures = measure(bootstrap, options, directory)
    report.show(figures, options.output, setting)
    return 1 if any(f.meets_target is False for f in figures) else 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
