"""`python -m bench [NAME...]`: measures what the guarantees cost, on this machine with real brokers.

Candidates run in turn within one run, because the speed of a machine changes. Exit code 1 if a figure missed its
target, 2 if a benchmark failed. Run nothing else on the machine meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.watch import Watch
from bench import report, transaction
from bench.context import Context
from bench.figures import Figure
from bench.registry import BENCHMARKS, BY_NAME, Benchmark, listing
from bench.runs import EXACTLY_ONCE, GUARANTEES

_JAVA_FLAGS = ("-Xmx512m", "-XX:+UseSerialGC")  # these brokers run long enough for the C2 compiler
_WARM_UP, _QUICK_WARM_UP = 10_000, 200  # transactions


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench",
        description=__doc__,
        epilog=listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("benchmarks", nargs="*", type=_benchmark, metavar="NAME", help="run only these; default: all")
    parser.add_argument("--list", action="store_true", help="print the benchmarks and their targets")
    parser.add_argument(
        "--quick", action="store_true", help="sizes of about a minute each, to try a benchmark: figures mean little"
    )
    parser.add_argument("--guarantee", choices=GUARANTEES, default=EXACTLY_ONCE, help="compared with Spark's own sink")
    parser.add_argument(
        "--partitions",
        type=_positive,
        action="append",
        default=[],
        metavar="N",
        help="partitions to measure, in place of a benchmark's own numbers; may be repeated",
    )
    parser.add_argument("--rounds", type=_positive, metavar="N", help="repetitions of each candidate")
    parser.add_argument("--batches", type=_positive, metavar="N", help="batches of throughput and memory")
    parser.add_argument("--slots", type=_positive, default=2, metavar="N", help="parallel tasks: N in local[N]")
    parser.add_argument("--bootstrap-servers", help="three or more existing brokers; default: embedded brokers")
    parser.add_argument("--directory", type=Path, help="the directory for the logs of the runs, which is kept")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser.parse_args(argv)


def _benchmark(name: str) -> Benchmark:
    if name not in BY_NAME:
        raise argparse.ArgumentTypeError(f"{name} is no benchmark; choose from {', '.join(BY_NAME)}")
    return BY_NAME[name]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def measure(context: Context, benchmarks: Sequence[Benchmark]) -> tuple[list[Figure], dict[str, str]]:
    """Runs the benchmarks one after the other on warm brokers; returns the figures, and the errors by benchmark.

    An error ends one benchmark and not the run, which may have measured for hours.
    """
    transaction.warm_up(context, context.size(_WARM_UP, _QUICK_WARM_UP))
    figures: list[Figure] = []
    errors: dict[str, str] = {}
    for benchmark in benchmarks:
        started = time.monotonic()
        try:
            for figure in benchmark.measure(context):
                figures.append(figure)  # one by one, because a later case may fail
        except Exception as e:
            traceback.print_exc()
            errors[benchmark.name] = f"{type(e).__name__}: {e}"
        context.report(f"{benchmark.name} took {time.monotonic() - started:.0f} s")
    return figures, errors


def main() -> int:
    options = arguments()
    if options.list:
        print(listing())
        return 0
    setting = report.setting(os.cpu_count(), options.slots, os.getloadavg(), quick=options.quick)
    with contextlib.ExitStack() as stack:
        directory = options.directory or Path(tempfile.mkdtemp(prefix="ackwright-bench-"))
        if options.directory is None:
            stack.enter_context(Watch(remove=(directory,)))  # removes it even if this process is killed
        directory.mkdir(parents=True, exist_ok=True)
        kafka = None if options.bootstrap_servers else stack.enter_context(EmbeddedKafka(java_flags=_JAVA_FLAGS))
        context = Context(
            kafka.bootstrap_servers if kafka else options.bootstrap_servers,
            tuple(broker.pid for broker in kafka.brokers) if kafka else (),
            directory,
            _report,
            options.guarantee,
            quick=options.quick,
            slots=options.slots,
            rounds=options.rounds,
            partitions=tuple(options.partitions),
            batches=options.batches,
        )
        figures, errors = measure(context, options.benchmarks or BENCHMARKS)
    report.show(figures, options.output, setting, errors)
    if errors:
        return 2
    return 1 if any(f.meets_target is False for f in figures) else 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
