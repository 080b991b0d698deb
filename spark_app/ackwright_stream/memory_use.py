"""What Spark's JVMs use: the driver's memory now, and of each executor its peak and the time of collections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExecutorUse:
    """An executor, or the driver, as its last heartbeat reports it: up to ten seconds old."""

    name: str  # Spark's id of it; "driver" for the driver
    heap_peak_bytes: int  # the largest that a heartbeat has reported
    off_heap_peak_bytes: int  # the same of the JVM's memory outside of the heap
    gc_seconds: float  # of all garbage collections since it started
    failed_tasks: int


@dataclass(frozen=True)
class MemoryUse:
    """The use at one moment."""

    heap_bytes: int  # of the driver's JVM, with objects that are no longer in use
    heap_max_bytes: int
    executors: tuple[ExecutorUse, ...]  # those that are active, and the driver

    @property
    def executor_count(self) -> int:
        """How many executors are connected to the driver."""
        return sum(e.name != "driver" for e in self.executors)
