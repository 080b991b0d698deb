"""Computes figures from measurements. Does no I/O, so that the arithmetic can be tested without brokers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Figure:
    """One line of the report."""

    name: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = True  # whether the target is a minimum; False: a maximum
    note: str = ""  # what the value consists of
    spread: tuple[float, float] | None = None  # the lowest and the highest of the repetitions

    @property
    def meets_target(self) -> bool | None:
        """Whether the value meets its target; None without a target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass(frozen=True)
class Throughput:
    """The throughput of one run."""

    rate: float  # records per second
    cycle_ms: float  # median time from the end of a batch to the end of the next
    cpu: Mapping[str, float]  # seconds per million records, by kind of process


def throughput(
    times: npt.NDArray[np.int64], batch: int, warm_up: int, cpu: Mapping[str, float] | None = None
) -> Throughput:
    """The throughput of a run, from the sorted times (ms) at which its records were appended.

    warm_up: the number of first batches that are left out. The rate covers complete cycles, from the last record of the
    last warm-up batch to the last record of the last batch: planning, reading, writing and committing, without Spark's
    start. Raises ValueError if fewer than two batches are left.
    """
    first = warm_up * batch
    if len(times) - first < 2 * batch:
        raise ValueError(
            f"{len(times)} records in batches of {batch} leave fewer than two batches after {warm_up} for the warm-up"
        )
    ends = times[batch - 1 :: batch][warm_up - 1 :].astype(float)
    seconds = float(times[-1] - times[first - 1]) / 1000
    return Throughput((len(times) - first) / seconds, float(np.median(np.diff(ends))), cpu or {})


def median(
    name: str, values: Sequence[float], unit: str, target: float | None = None, *, at_least: bool = True, note: str = ""
) -> Figure:
    """The median of the repetitions of a measurement, with their spread. Raises ValueError if there are none."""
    if not values:
        raise ValueError(f"{name}: nothing was measured")
    value, low, high = (round(v, 3) for v in (statistics.median(values), min(values), max(values)))
    return Figure(name, value, unit, target, at_least, note, (low, high))


def ratio(
    name: str,
    numerators: Sequence[float],
    denominators: Sequence[float],
    target: float | None = None,
    *,
    at_least: bool = True,
    note: str = "",
) -> Figure:
    """The median of the ratios of measurements that were taken in turn: the first by the first, and so on.

    A pair shares the state of the machine, which changes more from minute to minute than the candidates differ.
    Raises ValueError if the numbers of measurements differ, or if there are none.
    """
    pairs = [a / b for a, b in zip(numerators, denominators, strict=True)]
    return median(name, pairs, "", target, at_least=at_least, note=note)


def percentiles(values: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th percentile by the nearest-rank method. Raises ValueError if there are no values."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2], ordered[min(len(ordered) - 1, -(-99 * len(ordered) // 100) - 1)]


@dataclass(frozen=True)
class Growth:
    """How a quantity grows, by least squares."""

    mean: float
    slope: float  # per unit of the other quantity
    relative: float  # growth over all samples, relative to the mean


def growth(times: Sequence[float], values: Sequence[float]) -> Growth:
    """The growth of values over times. Raises ValueError for fewer than six values."""
    if len(values) < 6:
        raise ValueError(f"{len(values)} samples are too few to compute growth; measure for longer")
    slope = float(np.polyfit(np.asarray(times, float), np.asarray(values, float), 1)[0])
    mean = statistics.fmean(values)
    return Growth(mean, slope, slope * (times[-1] - times[0]) / mean)
