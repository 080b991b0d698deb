"""`python -m bench`: what the guarantees cost, on this machine, against real brokers.

throughput   each guarantee against Spark's own Kafka sink, on the same input, in turns
latency      end to end at 2,000 records/s and a trigger of 1 s, each guarantee and Spark's own Kafka sink; of exactly-once and Spark's also
             at the fastest trigger
transaction  the fixed cost of a lane's transaction
memory       of Spark's Python workers over many batches
topics       one look of the operator at 200 topics

Exit code 1 if a figure that was to be reached was missed. Nothing else should run on the machine meanwhile.
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

_JAVA_FLAGS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
)  # of embedded brokers: the optimizing compiler, for these are to run long
KINDS = ("throughput", "latency", "transaction", "memory", "topics")


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer records and cases, shorter runs: half an hour or less"
    )
    parser.add_argument("--records", type=int, help="records of a throughput run, the warm-up included")
    parser.add_argument("--batch", type=int, default=100_000, help="records a batch (maxOffsetsPerTrigger)")
    parser.add_argument("--rounds", type=int, default=2, help="how often the variants take turns")
    parser.add_argument(
        "--slots",
        type=int,
        default=2,
        help="tasks at once: n of local[n], for every variant; of the latency, one a partition",
    )
    parser.add_argument("--only", action="append", choices=KINDS, help="measure this alone; may be repeated")
    parser.add_argument("--bootstrap-servers", help="brokers to use, three at least, in place of embedded ones")
    parser.add_argument("--directory", type=Path, help="where the runs leave their logs; they stay there")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(given)


def cases(quick: bool, records: int | None, batch: int) -> list[Case]:
    """What is copied: small and large records, few and many partitions, and these in large batches too unless `records` limits it. Raises
    ValueError if records leave nothing to measure."""
    batches = (records or (6 if quick else 11) * batch) // batch
    if batches < WARM_UP + 2:
        raise ValueError(
            f"{batches} batches of {batch} records are too few: {WARM_UP} warm up, two at least have to be measured"
        )
    shapes = ((100, 4), (1000, 4)) if quick else ((100, 4), (100, 32), (1000, 4), (1000, 32))
    found = [Case(size, partitions, batches, batch) for size, partitions in shapes]
    # A transaction for each lane: what it costs shows in small batches of many lanes, and in large ones it does not.
    return found if quick or records else [*found, Case(100, 32, WARM_UP + 2, 5 * batch)]


def measure(bootstrap: str, given: argparse.Namespace, directory: Path) -> list[Figure]:
    wanted = given.only or KINDS
    found: list[Figure] = []
    if {"transaction", "throughput", "latency"} & set(wanted):
        transaction.warm_up(bootstrap, 1000 if given.quick else 10_000, directory, _say)
    if "transaction" in wanted:
        found += transaction.measure(bootstrap, 20 if given.quick else 60, directory, _say)
    if "throughput" in wanted:
        for case in cases(given.quick, given.records, given.batch):
            found += throughput.measure(bootstrap, case, directory, _say, slots=given.slots, rounds=given.rounds)
    if "latency" in wanted:
        warm_up, seconds = (
            (60, 20) if given.quick else (120, 60)
        )  # a cold JVM on two processors takes a minute to get fast
        for variant, trigger in latency.CASES:
            found += latency.measure(bootstrap, variant, trigger, directory, _say, warm_up=warm_up, seconds=seconds)
    if "memory" in wanted:
        found += memory.measure(bootstrap, 60 if given.quick else 300, given.slots, directory, _say)
    if "topics" in wanted:
        found += topics.measure(bootstrap, 5 if given.quick else 20, _say)
    return found


def main() -> int:
    given = arguments()
    try:
        cases(given.quick, given.records, given.batch)
    except ValueError as e:
        print(f"bench: {e}", file=sys.stderr)
        return 2
    setting = report.setting(os.cpu_count(), given.slots, os.getloadavg())
    with contextlib.ExitStack() as stack:
        directory = given.directory or Path(tempfile.mkdtemp(prefix="ackwright-bench-"))
        if given.directory is None:
            stack.enter_context(Watch(remove=(directory,)))  # also if this process is killed
        directory.mkdir(parents=True, exist_ok=True)
        bootstrap = (
            given.bootstrap_servers or stack.enter_context(EmbeddedKafka(java_flags=_JAVA_FLAGS)).bootstrap_servers
        )
        found = measure(bootstrap, given, directory)
    report.show(found, given.output, setting)
    return 1 if any(f.reached is False for f in found) else 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
