"""Prints where the time of a test run goes: seconds per file and per folder, from pytest's --durations=0.

pytest --durations=0 tests/unit | tee run.log && python tools/test_times.py run.log
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

# "1.25s call     tests/unit/test_a.py::test_b[c]"
_LINE = re.compile(r"^\s*(\d+\.\d+)s (?:setup|call|teardown)\s+([^\s:]+)::")


def seconds_by_file(log: Iterable[str]) -> dict[str, float]:
    """The sum of set-up, call and teardown of each file's tests, in seconds."""
    times: dict[str, float] = {}
    for line in log:
        if match := _LINE.match(line):
            times[match[2]] = times.get(match[2], 0.0) + float(match[1])
    return times


def by_folder(files: dict[str, float]) -> dict[str, float]:
    """The sums of the files in each folder, without those in its subfolders."""
    times: dict[str, float] = {}
    for file, seconds in files.items():
        folder = str(PurePosixPath(file).parent)
        times[folder] = times.get(folder, 0.0) + seconds
    return times


def two_digits(seconds: float) -> str:
    """The number rounded to two significant digits, without an exponent."""
    rounded = float(f"{seconds:.2g}")
    return f"{rounded:.0f}" if rounded >= 10 else f"{rounded:g}"


def table(title: str, times: dict[str, float]) -> list[str]:
    """A Markdown table, the longest time first."""
    rows = [f"| {two_digits(seconds)} | {name} |" for name, seconds in sorted(times.items(), key=lambda row: -row[1])]
    return [f"| seconds | {title} |", "|---:|---|", *rows]


def main(arguments: Sequence[str]) -> int:
    """Prints the tables of the log that the arguments name; returns the exit code."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    files = seconds_by_file(Path(arguments[0]).read_text(errors="replace").splitlines())
    if not files:
        print(f"{arguments[0]}: no durations; run pytest with --durations=0", file=sys.stderr)
        return 1
    print("\n".join([*table("folder", by_folder(files)), "", *table("file", files)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
