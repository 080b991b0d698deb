"""How many executors a pipeline needs, by its lag and the rates at which records arrive and are delivered. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ackwright_stream.jobspec import Autoscaling

WINDOWS = 3  # that have to agree before the number of executors changes
BUSY = 0.8  # of the time of its processors, a pipeline of the right size works


@dataclass(frozen=True)
class Window:
    """What was measured from one moment between two batches to another."""

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
    windows: tuple[Window, ...] = ()  # since the last change, the latest WINDOWS of them

    @classmethod
    def start(cls, limits: Autoscaling, now: float) -> Scaling:
        """A driver begins with the smallest number."""
        return cls(limits, limits.min_executors, now)

    def after(self, window: Window, lanes: int, now: float) -> Scaling:
        """The scaling after one more window.

        The number rises to the smallest need of the last windows, if each of them left a lag of more than a window's
        arrivals: without a lag, more executors deliver nothing earlier. It falls to their largest need after the
        cool-down. A change begins with new windows.
        """
        measured = replace(self, windows=(*self.windows, window)[-WINDOWS:])
        needs = [self._need(w, lanes) for w in measured.windows]
        known = [need for need in needs if need is not None]
        if len(known) < WINDOWS:
            return measured
        if min(known) > self.target and all(self._is_behind(w) for w in measured.windows):
            return self._changed(min(known), now)
        if max(known) < self.target and now - self.changed_at >= self.limits.cool_down_ms / 1000:
            return self._changed(max(known), now)
        return measured

    def _changed(self, target: int, now: float) -> Scaling:
        return replace(self, target=target, changed_at=now, windows=())

    def _is_behind(self, window: Window) -> bool:
        return window.lag > window.arrived / window.seconds * self.limits.window_ms / 1000

    def _need(self, window: Window, lanes: int) -> int | None:
        """The number of executors that deliver what arrives, and the lag within the drain target; None: not known."""
        limits = self.limits
        if not window.delivered or not window.busy_seconds:
            return None if window.lag else limits.min_executors
        rate = window.delivered / window.busy_seconds  # of one busy processor, per second
        demand = window.arrived / window.seconds + window.lag / (limits.drain_target_ms / 1000)
        useful = math.ceil(lanes / limits.cores)  # a lane has one task at a time
        need = math.ceil(math.ceil(demand / (BUSY * rate)) / limits.cores)
        return max(limits.min_executors, min(need, limits.max_executors, useful))
