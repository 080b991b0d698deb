"""From measurements to figures: pure, so that the arithmetic can be tested without a broker."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Figure:
    """One line of the report. target: what was to be reached; at_least: whether more is better (else less). note: spread, breakdown."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = True
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """None where nothing was to be reached."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass(frozen=True)
class Throughput:
    """One run. rate: records/s; cycle_ms: median time from the end of a batch to the end of the next; cpu: seconds per million records,
    by kind of process."""

    rate: float
    cycle_ms: float
    cpu: Mapping[str, float]


def throughput(
    times: npt.NDArray[np.int64], batch: int, warm_up: int, cpu: Mapping[str, float] | None = None
) -> Throughput:
    """The rate of a run from the times (ms, sorted) at which its records were appended; warm_up: batches that do not count.

    From the last record of the last warm-up batch to the last record of the last batch: whole cycles, each with everything that one
    batch costs (planning, reading, writing, committing), and nothing of Spark's start. Raises ValueError if too few batches are left.
    """
    first = warm_up * batch
    if len(times) - first < 2 * batch:
        raise ValueError(
            f"{len(times)} records in batches of {batch} leave fewer than two batches after {warm_up} for warming up"
        )
    ends = times[batch - 1 :: batch][warm_up - 1 :].astype(float)
    seconds = float(times[-1] - times[first - 1]) / 1000
    return Throughput((len(times) - first) / seconds, float(np.median(np.diff(ends))), cpu or {})


def spread(values: Sequence[float]) -> str:
    """Lowest to highest, and how far they are apart relative to the median."""
    middle = statistics.median(values)
    apart = (max(values) - min(values)) / middle if middle else 0.0
    return f"{min(values):,.0f} to {max(values):,.0f} ({apart:.0%})"


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th, by the nearest rank: values that did occur. Raises ValueError if there are none."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]


@dataclass(frozen=True)
class Growth:
    """Of a quantity over time. start, end: means of the first and the last third; slope: least squares, per unit of time."""

    start: float
    end: float
    slope: float

    @property
    def relative(self) -> float:
        return self.end / self.start - 1


def growth(times: Sequence[float], values: Sequence[float]) -> Growth:
    """How values grow over times. Raises ValueError for fewer than six."""
    if len(values) < 6:
        raise ValueError(f"{len(values)} samples say nothing about growth; measure for longer")
    third = len(values) // 3
    slope = float(np.polyfit(np.asarray(times, float), np.asarray(values, float), 1)[0])
    return Growth(statistics.fmean(values[:third]), statistics.fmean(values[-third:]), slope)
