"""Reads what Spark's JVMs use from the store of statuses behind Spark's page, which exists without the page, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ackwright_stream.memory_use import ExecutorUse, MemoryUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def memory_use(spark: SparkSession) -> MemoryUse:
    """The present use. Executors that have sent no heartbeat yet have zeros.

    Raises Py4JError or OSError if the JVM has ended, or the session is stopped.
    """
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    summaries = spark._jsc.sc().statusStore().executorList(True)
    return MemoryUse(
        heap_bytes=runtime.totalMemory() - runtime.freeMemory(),
        heap_max_bytes=runtime.maxMemory(),
        executors=tuple(_executor(summaries.apply(i)) for i in range(summaries.size())),
    )


def _executor(summary: Any) -> ExecutorUse:
    reported = summary.peakMemoryMetrics()
    peaks = reported.get() if reported.isDefined() else None

    def peak(metric: str) -> int:
        return int(peaks.getMetricValue(metric)) if peaks is not None else 0

    return ExecutorUse(
        name=str(summary.id()),
        heap_peak_bytes=peak("JVMHeapMemory"),
        off_heap_peak_bytes=peak("JVMOffHeapMemory"),
        gc_seconds=peak("TotalGCTime") / 1000,
        failed_tasks=int(summary.failedTasks()),
    )
