"""What every benchmark of a run gets: the brokers, which all share, and the sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Context:
    """One run of `python -m bench`."""

    bootstrap: str
    brokers: tuple[int, ...]  # process ids; empty for brokers that this run has not started
    directory: Path  # for the files of the runs
    report: Callable[[str], None]  # prints a line of progress
    guarantee: str  # of the candidate that is compared with Spark's own sink
    quick: bool = False
    slots: int = 2  # parallel tasks: n in local[n], for every candidate
    # By argument, in place of a benchmark's own size.
    rounds: int | None = None
    partitions: tuple[int, ...] = ()
    batches: int | None = None

    def size(self, full: int, quick: int, override: int | None = None) -> int:
        """The size of a measurement: the argument's if there is one, else by --quick."""
        return override or (quick if self.quick else full)

    def cases(self, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of partitions to measure."""
        return self.partitions or (quick if self.quick else full)


def in_turn(names: tuple[str, ...], number: int) -> tuple[str, ...]:
    """The order in round `number`: every other round is reversed, so that drift (temperature, disk) favours none."""
    return names if number % 2 == 0 else names[::-1]
