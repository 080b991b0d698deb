"""Runs every test and the campaigns of kills, one suite after the other, and ends with a table: `make nightly`.

A suite that fails does not stop the next one. Its output is in build/nightly/<suite>.log. The exit code is 1 if a suite
failed. Arguments are those of the campaign of the guarantees (`python -m tests.chaos --help`); the default is
--kills 200. The campaign of a stateful pipeline has 40 kills.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIRECTORY = ROOT / "build" / "nightly"
_KILLS = ("--kills", "200")
_STATEFUL = ("--stateful", "--kills", "40")  # the other campaign's arguments need not fit
# Variables by which `make` passes its arguments on: those of the campaign would be arguments of the tests, too.
_OF_MAKE = frozenset({"ARGS", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS"})


@dataclass(frozen=True)
class Result:
    """How a suite ended."""

    suite: str
    exit_code: int
    seconds: float
    last_line: str  # of its output

    @property
    def row(self) -> str:
        """Its row of the table."""
        verdict = "passed" if self.exit_code == 0 else f"FAILED ({self.exit_code})"
        return f"| {self.suite} | {verdict} | {self.seconds / 60:.0f} | {self.last_line.replace('|', '/')} |"


def suites(campaign: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The command of each suite, by its name. campaign: the arguments of the campaign of the guarantees."""

    def chaos(arguments: Sequence[str]) -> tuple[str, ...]:
        return "make", "chaos", f"ARGS={shlex.join(arguments)}"

    return {
        "test-all": ("make", "test-all"),
        "model": ("make", "model"),
        "e2e": ("make", "e2e"),
        "chaos": chaos(campaign or _KILLS),
        "chaos-stateful": chaos(_STATEFUL),
    }


def run(commands: Mapping[str, Sequence[str]], directory: Path) -> Iterator[Result]:
    """Runs each command, and yields how it ended. directory: gets the logs."""
    directory.mkdir(parents=True, exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    for suite, command in commands.items():
        log, started = directory / f"{suite}.log", time.monotonic()
        with log.open("wb") as output:
            ended = subprocess.run(command, cwd=ROOT, env=environment, stdout=output, stderr=output, check=False)
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        yield Result(suite, ended.returncode, time.monotonic() - started, lines[-1].strip() if lines else "")


def table(results: Sequence[Result]) -> list[str]:
    """A Markdown table of the results."""
    return ["| suite | result | minutes | last line |", "|---|---|---:|---|", *(result.row for result in results)]


def main(arguments: Sequence[str]) -> int:
    """Runs all suites and prints the table; returns the exit code."""
    results = []
    for result in run(suites(arguments), DIRECTORY):
        results.append(result)
        print(result.row, flush=True)
    print("", *table(results), f"Logs: {DIRECTORY.relative_to(ROOT)}", sep="\n")
    return int(any(result.exit_code for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
