"""The settings of Spark that a pipeline may set: an allow-list, because any other may run code, leak or split ranges.

Excluded on purpose, among others: spark.kubernetes.* and spark.submit* (the pods of others), *.extraJavaOptions,
spark.jars*, plugins, listeners and serializers (code in the driver), spark.python.* and spark.speculation (on which the
guarantee rests).
"""

from __future__ import annotations

import difflib

from ackwright.api.violations import Problem
from ackwright.errors import Violation

ALLOWED = frozenset(
    {
        "spark.default.parallelism",
        "spark.driver.maxResultSize",
        "spark.driver.memoryOverhead",
        "spark.executor.heartbeatInterval",
        "spark.executor.memoryOverhead",
        "spark.hadoop.fs.s3a.endpoint",
        "spark.hadoop.fs.s3a.endpoint.region",
        "spark.hadoop.fs.s3a.path.style.access",
        "spark.kryoserializer.buffer.max",
        "spark.locality.wait",
        "spark.memory.fraction",
        "spark.memory.offHeap.enabled",
        "spark.memory.offHeap.size",
        "spark.memory.storageFraction",
        "spark.network.timeout",
        "spark.rpc.askTimeout",
        "spark.rpc.message.maxSize",
        "spark.sql.ansi.enabled",
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.caseSensitive",
        "spark.sql.codegen.wholeStage",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
        "spark.sql.json.filterPushdown.enabled",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.mapKeyDedupPolicy",
        "spark.sql.session.timeZone",
        "spark.sql.shuffle.partitions",
        "spark.sql.streaming.metricsEnabled",
        "spark.sql.streaming.numRecentProgressUpdates",
        "spark.ui.enabled",
        "spark.ui.port",
    }
)
NOT_ALLOWED = "is not among the Spark settings that a pipeline may set"
REMEDY = "remove it; the operator sets what the guarantee needs"
_ELSEWHERE = {
    "spark.dynamicAllocation.enabled": "spec.spark.executor.autoscaling",
    "spark.dynamicAllocation.maxExecutors": "spec.spark.executor.autoscaling",
    "spark.dynamicAllocation.minExecutors": "spec.spark.executor.instances",
    "spark.driver.cores": "spec.spark.driver.cores",
    "spark.driver.memory": "spec.spark.driver.memory",
    "spark.eventLog.dir": "spec.spark.eventLog.directory",
    "spark.eventLog.enabled": "spec.spark.eventLog",
    "spark.executor.cores": "spec.spark.executor.cores",
    "spark.executor.instances": "spec.spark.executor.instances",
    "spark.executor.memory": "spec.spark.executor.memory",
    "spark.app.name": "metadata.name",
}


def refuse(key: str) -> Violation | None:
    """The violation if a key of spec.spark.conf is refused, else None. The value is omitted: it may be a credential."""
    if key in ALLOWED:
        return None
    field = f"spec.spark.conf[{key!r}]"
    if key in _ELSEWHERE:
        return Problem.without_value(field, NOT_ALLOWED, f"use {_ELSEWHERE[key]}")
    near = difflib.get_close_matches(key, sorted(ALLOWED), n=1, cutoff=0.9)
    return Problem.without_value(field, NOT_ALLOWED, f"did you mean {near[0]}?" if near else REMEDY)
