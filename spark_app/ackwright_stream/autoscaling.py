"""How many executors a pipeline needs, by its lag and the rates at which records arrive and are delivered. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ackwright_stream.jobspec import Autoscaling

MEASUREMENTS = 3  # that have to agree before the number of executors changes
BUSY = 0.8  # of the time of its processors, a pipeline of the right size works


@dataclass(frozen=True)
class Measurement:
    """The load of a pipeline from one moment between two batches to another."""

    seconds: float
    arrived: int  # offsets that were added to the source
    delivered: int  # offsets
    busy_seconds: float  # of all processors together: of each batch its duration, times the processors with a task
    lag: int  # offsets, at the end


@dataclass(frozen=True)
class Scaling:
    """The number of executors that a pipeline is to have, and what the next change depends on."""

    limits: Autoscaling
    target: int
    changed_at: float  # seconds, on the clock of `now`
    measurements: tuple[Measurement, ...] = ()  # since the last change, the latest MEASUREMENTS of them

    @classmethod
    def start(cls, limits: Autoscaling, now: float) -> Scaling:
        """A driver begins with the smallest number."""
        return cls(limits, limits.min_executors, now)

    def after(self, measurement: Measurement, lanes: int, now: float) -> Scaling:
        """Adds a measurement, and changes the target if the last ones agree.

        The number rises to the smallest need of the last measurements, if each of them left a lag of more than arrives
        within window_ms: without a lag, more executors deliver nothing earlier. It falls to their largest need after
        the cool-down. A change begins with new measurements.
        """
        measured = replace(self, measurements=(*self.measurements, measurement)[-MEASUREMENTS:])
        needs = [self._need(m, lanes) for m in measured.measurements]
        known = [need for need in needs if need is not None]
        if len(known) < MEASUREMENTS:
            return measured
        if min(known) > self.target and all(self._is_behind(m) for m in measured.measurements):
            return self._changed(min(known), now)
        if max(known) < self.target and now - self.changed_at >= self.limits.cool_down_ms / 1000:
            return self._changed(max(known), now)
        return measured

    def _changed(self, target: int, now: float) -> Scaling:
        return replace(self, target=target, changed_at=now, measurements=())

    def _is_behind(self, measurement: Measurement) -> bool:
        return measurement.lag > measurement.arrived / measurement.seconds * self.limits.window_ms / 1000

    def _need(self, measurement: Measurement, lanes: int) -> int | None:
        """The number of executors that deliver what arrives, and the lag within the drain target; None: not known."""
        limits = self.limits
        if not measurement.delivered or not measurement.busy_seconds:
            return None if measurement.lag else limits.min_executors
        rate = measurement.delivered / measurement.busy_seconds  # of one busy processor, per second
        demand = measurement.arrived / measurement.seconds + measurement.lag / (limits.drain_target_ms / 1000)
        useful = math.ceil(lanes / limits.cores)  # a lane has one task at a time
        need = math.ceil(math.ceil(demand / (BUSY * rate)) / limits.cores)
        return max(limits.min_executors, min(need, limits.max_executors, useful))
