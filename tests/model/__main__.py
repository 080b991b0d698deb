"""Searches variants of the model and prints their verdicts; exit code 1 if a verdict differs from the expected one.

`python -m tests.model [names] [--traces]`. Without names it searches all variants, in about half an hour; --quick
selects those of the test suite.
"""

from __future__ import annotations

import argparse
import sys

from . import (
    compare_and_set,
    decisions,
    failover,
    letter_topic,
    membership,
    named_files,
    output_apart,
    replay,
    row_lock,
    shards,
    variants,
)
from .search import Result, search
from .variants import Variant

VARIANTS = {
    **variants.VARIANTS,
    **membership.VARIANTS,
    **row_lock.VARIANTS,
    **failover.VARIANTS,
    **compare_and_set.VARIANTS,
    **named_files.VARIANTS,
    **letter_topic.VARIANTS,
    **decisions.VARIANTS,
    **output_apart.VARIANTS,
    **replay.VARIANTS,
    **shards.VARIANTS,
}


def is_expected(variant: Variant, result: Result) -> bool:
    """Whether the search ended with the expected violation or, if none is expected, was complete without one."""
    if variant.violation:
        return result.violation is not None and variant.violation in result.violation
    return result.complete and result.violation is None


def main() -> int:
    p = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    p.add_argument("names", nargs="*", choices=[*VARIANTS, []], metavar="name", help="variants; default: all")
    p.add_argument("--quick", action="store_true", help="only the quick variants")
    p.add_argument("--seconds", type=float, default=900, help="time limit of each search")
    p.add_argument("--traces", action="store_true", help="print the counterexamples")
    a = p.parse_args()
    unexpected = 0
    for name in a.names or [n for n, v in VARIANTS.items() if not (a.quick and v.slow)]:
        variant = VARIANTS[name]
        r = search(variant.model(variant.cfg), a.seconds)
        note = "" if is_expected(variant, r) else "  <-- NOT AS EXPECTED"
        unexpected += bool(note)
        print(f"{name:38} {r.verdict:8} {r.states:>9,} states, {r.seconds:6.1f} s  {variant.about}{note}", flush=True)
        if r.violation:
            print(f"{'':38} {r.violation} ({len(r.trace)} steps)", flush=True)
            for i, step in enumerate(r.trace if a.traces else (), 1):
                print(f"{'':40}{i:2}. {step}", flush=True)
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
