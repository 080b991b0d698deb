"""The settings of Spark that a pipeline may set: an allow-list, because any other may run code, leak or split ranges.

Excluded on purpose, among others: spark.kubernetes.* and spark.submit* (the pods of others), *.extraJavaOptions,
spark.jars*, plugins, listeners and serializers (code in the driver), spark.python.* and spark.speculation (on which the
guarantee rests).
"""

from __future__ import annotations

ALLOWED = frozenset(
    {
        "spark.default.parallelism",
        "spark.driver.maxResultSize",
        "spark.driver.memoryOverhead",
        "spark.executor.heartbeatInterval",
        "spark.executor.memoryOverhead",
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
