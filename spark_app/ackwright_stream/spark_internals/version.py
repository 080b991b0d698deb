"""The version of Spark whose unpublished interfaces this package uses, and what it needs of them.

test_spark_internals (integration) verifies every class and method of JVM_METHODS in a real session.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyspark
from pyspark.sql import SparkSession

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

SPARK_VERSION = "4.1.1"
_STATEFUL = "org.apache.spark.sql.execution.streaming.operators.stateful"
_JOIN_HELPER = f"{_STATEFUL}.join.StreamingSymmetricHashJoinHelper"

# By class of the JVM, the methods that this package calls on its instances.
JVM_METHODS: Mapping[str, tuple[str, ...]] = {
    "java.lang.Class": ("forName", "getField"),
    "java.lang.ClassLoader": ("loadClass",),
    "java.lang.Runtime": ("freeMemory", "getRuntime", "maxMemory", "totalMemory"),
    "java.lang.StringBuilder": ("append",),
    "java.lang.Thread": ("currentThread", "getContextClassLoader"),
    "java.lang.reflect.Field": ("get",),
    "java.time.Duration": ("ofMillis",),
    "java.util.Properties": ("setProperty",),
    "java.util.regex.Matcher": ("replaceAll",),
    "java.util.regex.Pattern": ("compile", "matcher"),
    "org.apache.hadoop.conf.Configuration": ("set",),
    "org.apache.hadoop.fs.FSDataInputStream": ("close", "readAllBytes"),
    "org.apache.hadoop.fs.FileStatus": ("getPath",),
    "org.apache.hadoop.fs.FileSystem": ("getLocal", "setWriteChecksum"),
    "org.apache.hadoop.fs.Path": ("getName", "getParent"),
    "org.apache.kafka.clients.admin.AdminClient": ("close", "create"),
    "org.apache.kafka.clients.consumer.KafkaConsumer": ("assign", "close", "poll", "seek"),
    "org.apache.spark.Dependency": ("rdd",),
    "org.apache.spark.SparkContext": ("isStopped", "killExecutors", "requestTotalExecutors", "statusStore"),
    "org.apache.spark.api.java.JavaSparkContext": ("hadoopConfiguration", "sc"),
    "org.apache.spark.executor.ExecutorMetrics": ("getMetricValue",),
    "org.apache.spark.rdd.CoalescedRDDPartition": ("parentsIndices",),
    "org.apache.spark.rdd.RDD": ("dependencies", "getNumPartitions", "partitions"),
    "org.apache.spark.api.python.PythonUtils": ("toScalaMap", "toSeq"),
    "org.apache.spark.status.AppStatusStore": ("executorList",),
    "org.apache.spark.status.api.v1.ExecutorSummary": ("failedTasks", "id", "isActive", "peakMemoryMetrics"),
    "org.apache.spark.sql.Row": ("get", "schema"),
    "org.apache.spark.sql.catalyst.analysis.FunctionRegistryBase": ("dropFunction", "functionExists"),
    "org.apache.spark.sql.catalyst.expressions.Attribute": ("dataType", "metadata", "name"),
    "org.apache.spark.sql.catalyst.expressions.Alias": ("toAttribute",),
    "org.apache.spark.sql.catalyst.expressions.And": ("left", "right"),
    "org.apache.spark.sql.catalyst.expressions.AttributeSet": ("contains", "size", "subsetOf", "toSeq"),
    "org.apache.spark.sql.catalyst.expressions.Expression": (
        "children",
        "deterministic",
        "nullIntolerant",
        "nullable",
        "references",
        "semanticEquals",
        "sql",
    ),
    "org.apache.spark.sql.catalyst.expressions.ExprId": ("id",),
    "org.apache.spark.sql.catalyst.expressions.ExpressionSet": ("toSeq",),
    "org.apache.spark.sql.catalyst.expressions.IsNotNull": ("child",),
    "org.apache.spark.sql.catalyst.expressions.Literal": ("value",),
    "org.apache.spark.sql.catalyst.expressions.NamedExpression": ("exprId",),
    "org.apache.spark.sql.catalyst.expressions.aggregate.AggregateExpression": (
        "aggregateFunction",
        "filter",
        "isDistinct",
    ),
    "org.apache.spark.sql.catalyst.expressions.aggregate.Average": ("child",),
    "org.apache.spark.sql.catalyst.expressions.aggregate.Sum": ("child",),
    "org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys$": ("unapply",),
    "org.apache.spark.sql.catalyst.plans.JoinType": ("sql",),
    "org.apache.spark.sql.catalyst.parser.ParserInterface": ("parsePlan",),
    "org.apache.spark.sql.catalyst.plans.logical.LogicalPlan": (
        "children",
        "constraints",
        "expressions",
        "isStreaming",
        "output",
        "outputSet",
        "references",
        "subqueries",
        "withNewChildren",
    ),
    "org.apache.spark.sql.catalyst.plans.logical.Aggregate": ("aggregateExpressions", "child", "groupingExpressions"),
    "org.apache.spark.sql.catalyst.plans.logical.Deduplicate": ("keys",),
    "org.apache.spark.sql.catalyst.plans.logical.EventTimeWatermark": ("nodeId",),
    "org.apache.spark.sql.catalyst.plans.logical.Filter": ("condition",),
    "org.apache.spark.sql.catalyst.plans.logical.Join": ("condition", "joinType", "left", "right"),
    "org.apache.spark.sql.catalyst.plans.logical.Project": ("projectList",),
    "org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark": (
        "groupingAttributesLen",
        "hasInitialState",
        "outputMode",
        "timeMode",
        "userFacingDataType",
    ),
    "org.apache.spark.sql.catalyst.rules.RuleExecutor": ("execute",),
    "org.apache.spark.sql.classic.Dataset": ("ofRows", "queryExecution"),
    "org.apache.spark.sql.Column": ("node",),
    "org.apache.spark.sql.classic.ColumnNodeToExpressionConverter$": ("apply",),
    "org.apache.spark.sql.classic.ExpressionUtils": ("column",),
    "org.apache.spark.sql.classic.SparkSession": ("sessionState",),
    "org.apache.spark.sql.execution.LogicalRDD": ("rdd",),
    "org.apache.spark.sql.execution.QueryExecution": (
        "analyzed",
        "executedPlan",
        "logical",
        "observedMetrics",
        "toRdd",
    ),
    "org.apache.spark.sql.execution.SparkPlan": ("children", "collectLeaves", "longMetric", "metrics", "nodeName"),
    "org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec": ("inputPartitions",),
    "org.apache.spark.sql.execution.datasources.v2.DataSourceRDDPartition": ("inputPartitions",),
    "org.apache.spark.sql.execution.metric.SQLMetric": ("value",),
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager": (
        "create",
        "createAtomic",
        "delete",
        "exists",
        "list",
        "mkdirs",
        "open",
    ),
    "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$CancellableFSDataOutputStream": (
        "cancel",
        "close",
        "write",
    ),
    "org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter": (
        "checkpointInfoAccumulator",
        "stateInfo",
    ),
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo": (
        "baseStateStoreCkptId",
        "batchVersion",
        "partitionId",
        "stateStoreCkptId",
    ),
    "org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo": ("operatorId",),
    "org.apache.spark.sql.execution.streaming.state.StateStore$": (
        "doMaintenanceAndUnload",
        "setMaintenancePaused",
    ),
    f"{_JOIN_HELPER}$": ("getStateWatermarkPredicates",),
    f"{_JOIN_HELPER}$JoinStateWatermarkPredicate": ("expr",),
    f"{_JOIN_HELPER}$JoinStateWatermarkPredicates": ("left", "right"),
    "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution": ("watermarkTracker",),
    "org.apache.spark.sql.execution.streaming.runtime.StreamExecution": ("lastExecution",),
    "org.apache.spark.sql.execution.streaming.runtime.StreamingQueryWrapper": ("recentProgress", "streamingQuery"),
    "org.apache.spark.sql.execution.streaming.runtime.WatermarkTracker": ("currentWatermark", "updateWatermark"),
    "org.apache.spark.sql.internal.SessionState": ("functionRegistry", "newHadoopConf", "optimizer", "sqlParser"),
    "org.apache.spark.sql.kafka010.KafkaOffsetRange": ("topicPartition",),
    "org.apache.spark.sql.kafka010.KafkaSourceRDDPartition": ("offsetRange",),
    "org.apache.spark.sql.kafka010.KafkaWriter": ("write",),
    "org.apache.spark.sql.streaming.StreamingQueryProgress": ("batchId", "json"),
    "org.apache.spark.sql.types.Metadata": ("contains",),
    "org.apache.spark.sql.types.StructType": ("fieldNames",),
    "org.apache.spark.sql.types.DataType": ("typeName",),
    "org.apache.spark.util.CollectionAccumulator": ("value",),
    "scala.Product": ("productElement",),
}


def require_supported_version(spark: SparkSession) -> None:
    """Raises JobError unless the session's Spark and the PySpark in this process have SPARK_VERSION."""
    for name, version in (("Spark", spark.version), ("PySpark", pyspark.__version__)):
        if version != SPARK_VERSION:
            raise JobError(
                Reason.UNEXPECTED,
                f"{name} has version {version}, and this release works with {SPARK_VERSION} only; "
                f"use the image of this release, or install pyspark=={SPARK_VERSION}",
            )
