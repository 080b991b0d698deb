"""The executors of a pipeline with autoscaling: measures its load, and changes their number between two batches.

The slots of the pipeline are those of the largest number of executors, and do not change with it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ackwright_stream.autoscaling import Measurement, Scaling
from ackwright_stream.failures import cause
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Autoscaling
from ackwright_stream.progress import Progress
from ackwright_stream.spark_internals import executors as of_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Executors:
    """Measures the load of one driver, and adds and releases its executors.

    Only called while no batch runs, by one thread at a time.
    """

    def __init__(
        self, spark: SparkSession, limits: Autoscaling, progress: Progress, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._spark, self._limits, self._progress, self._now = spark, limits, progress, now
        self._scaling = Scaling.start(limits, now())
        self._requested = limits.min_executors  # what Spark was started with (spark.executor.instances)
        self._progress.executors_requested = self._requested
        self._released: frozenset[str] = frozenset()  # Spark lists them until they have ended
        self.begin()

    def begin(self) -> None:
        """Restarts the measurement: the time before is that of another query."""
        self._begin_measurement(None)

    def reset(self) -> None:
        """Releases all executors but the smallest number, with which this driver begins again."""
        self._scaling = Scaling.start(self._limits, self._now())
        try:
            self._apply(self._scaling.target)
        except Exception as e:
            self._failed(e)

    def batch_ended(self, tasks: int, offsets: int, seconds: float) -> None:
        """Counts a delivered batch, and changes the number of executors if it is time to."""
        try:
            running = self._running()
            self._delivered += offsets
            self._busy_seconds += seconds * min(tasks, len(running) * self._limits.cores)
            self._measure(idle=False)
        except Exception as e:
            self._failed(e)

    def idle(self) -> None:
        """Changes the number of executors if it is time to, while no batch is due."""
        try:
            self._measure(idle=True)
        except Exception as e:
            self._failed(e)

    def _measure(self, *, idle: bool) -> None:
        now, load = self._now(), self._progress.load()
        if load is None:
            return
        if self._ends is None:
            self._begin_measurement(load.ends)
            return
        # With a lag and without a batch the next batch is due, and its rate is part of the measurement.
        if now - self._since < self._limits.window_ms / 1000 or (idle and load.lag):
            return
        measurement = Measurement(
            seconds=now - self._since,
            arrived=max(0, load.ends - self._ends),
            delivered=self._delivered,
            busy_seconds=self._busy_seconds,
            lag=load.lag,
        )
        self._scaling = self._scaling.after(measurement, load.lanes, now)
        self._begin_measurement(load.ends)
        self._apply(self._scaling.target)

    def _begin_measurement(self, ends: int | None) -> None:
        self._since, self._ends = self._now(), ends  # the sum of the source's ends; None: not known yet
        self._delivered, self._busy_seconds = 0, 0.0

    def _apply(self, target: int) -> None:
        running = self._running()
        surplus = running[target:]  # the latest: consumers and producers of the earlier ones are connected longest
        if not surplus and target == self._requested:
            return
        log.info("executors: %d requested, %d before; %d run", target, self._requested, len(running))
        self._progress.executors_requested = target
        fault_point("executors-before")
        if surplus:
            of_spark.release(self._spark, surplus, target)
            self._released |= frozenset(surplus)
        else:
            of_spark.request_total(self._spark, target)
        self._requested = target
        fault_point("executors-after")

    def _running(self) -> tuple[str, ...]:
        listed = of_spark.active(self._spark)
        self._released &= frozenset(listed)
        running = tuple(e for e in listed if e not in self._released)
        self._progress.count_executors(len(running))
        return running

    def _failed(self, error: Exception) -> None:
        """Delivery does not depend on the number of executors."""
        log.warning("the number of executors could not be changed: %s", cause(error).message)
