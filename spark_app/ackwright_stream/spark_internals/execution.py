"""Spark's execution of a batch (QueryExecution): the offsets that its tasks read, and rows that left its steps.

Texts are read in place of objects where a batch waits for them, because each call across the gateway takes 0.2 ms.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

# The text of Spark's case class: topic-partition, fromOffset, untilOffset, preferred location.
_RANGE = re.compile(r"^KafkaOffsetRange\((?P<topic>.+)-(?P<partition>\d+),(?P<start>\d+),(?P<until>\d+),.*\)$")
# The text of a sequence with exactly one dependency.
_ONE_TO_ONE = re.compile(r"^\w+\(org\.apache\.spark\.OneToOneDependency@[0-9a-f]+\)$")
_OUTPUT_ROWS = "numOutputRows"


@dataclass(frozen=True)
class Execution:
    """How Spark executes a frame or a batch of a stream. Opaque: only this package reads it."""

    java: Any  # org.apache.spark.sql.execution.QueryExecution


class OffsetRange(NamedTuple):
    """Offsets [start, until) of one source partition."""

    topic: str
    partition: int
    start: int
    until: int


def execution_of(frame: DataFrame) -> Execution:
    """The execution of a frame that is not a stream."""
    return Execution(frame._jdf.queryExecution())


def last_execution(query: StreamingQuery) -> Execution:
    """The execution of the stream's current batch, or else of its last one."""
    return Execution(query._jsq.streamingQuery().lastExecution())


def running_execution(rows: DataFrame, query: StreamingQuery) -> Execution:
    """The execution of the stream's current batch, whose rows foreachBatch passed.

    Raises JobError if the rows are those of another execution: then the written records would not be those whose
    positions move.
    """
    execution = last_execution(query)
    if not rows._jdf.queryExecution().logical().rdd().equals(execution.java.toRdd()):
        raise JobError(
            Reason.UNEXPECTED,
            "Spark passed rows of another execution than the one that runs; this Spark version is not supported",
        )
    return execution


def task_inputs(execution: Execution) -> list[tuple[OffsetRange, ...]]:
    """The ranges that each task reads, by the task's partition id.

    The partitions of the execution's RDD are those of the DataSourceRDD at its bottom as long as every step between
    them is one-to-one. Raises JobError(NOT_STATELESS) if one is not: a shuffle, a union or a coalesce.
    """
    # RDD.partitions is in the order of the partitions' ids.
    return [
        _input_ranges(partition.inputPartitions()) for partition in _source_rdd(execution.java.toRdd()).partitions()
    ]


def _input_ranges(inputs: Any) -> tuple[OffsetRange, ...]:
    return tuple(_offset_range(inputs.apply(i).offsetRange().toString()) for i in range(inputs.size()))


def _offset_range(text: str) -> OffsetRange:
    match = _RANGE.match(text)
    if not match:
        raise JobError(
            Reason.UNEXPECTED, f"Spark's offset range {text} has an unknown form; this Spark version is not supported"
        )
    return OffsetRange(match["topic"], int(match["partition"]), int(match["start"]), int(match["until"]))


def _source_rdd(rdd: Any) -> Any:
    while True:
        dependencies = rdd.dependencies()
        if _ONE_TO_ONE.match(dependencies.toString()):
            rdd = dependencies.head().rdd()
            continue
        name = rdd.getClass().getSimpleName()
        if name == "DataSourceRDD":
            return rdd
        kind = (
            dependencies.head().getClass().getSimpleName()
            if dependencies.size() == 1
            else f"{dependencies.size()} dependencies"
        )
        raise JobError(
            Reason.NOT_STATELESS,
            f"the transform is not stateless: {name} ({kind}) stands between source and sink; remove what "
            f"shuffles or merges rows "
            "(GROUP BY, DISTINCT, JOIN, ORDER BY, LIMIT, UNION, repartition)",
        )


def source_partitions(batch: DataFrame) -> list[tuple[str, int]]:
    """Topic and partition that each Spark partition reads, of a frame that spark.read loaded from Kafka."""
    ranges = [partition.offsetRange() for partition in batch._jdf.queryExecution().toRdd().partitions()]
    return [(lane.topic(), lane.partition()) for lane in (r.topicPartition() for r in ranges)]


def output_rows(execution: Execution, row_for_row: Collection[str]) -> int | None:
    """Rows that have left the topmost step that is not row-for-row; None if Spark does not count its rows.

    row_for_row: names of physical steps that return exactly one row for each row of their only input.
    """
    step = execution.java.executedPlan()
    while step.nodeName().split(" ")[0] in row_for_row:
        step = step.children().head()
    count = step.metrics().get(_OUTPUT_ROWS)
    return int(count.get().value()) if count.isDefined() else None


def observed_metrics(frame: DataFrame) -> dict[str, dict[str, int]]:
    """The integers that DataFrame.observe counted in the frame's last action, by name and field.

    pyspark.sql.Observation would need a listener, and allows a name only once.
    """
    metrics = frame._jdf.queryExecution().observedMetrics()
    names = metrics.keys().toSeq()
    counts: dict[str, dict[str, int]] = {}
    for i in range(names.size()):
        row = metrics.apply(names.apply(i))
        fields = row.schema().fieldNames()
        counts[names.apply(i)] = {fields[j]: int(row.get(j)) for j in range(len(fields))}
    return counts


def write_to_kafka(spark: SparkSession, execution: Execution, producer: Mapping[str, str], topic: str | None) -> None:
    """Writes rows as Spark's KafkaSourceProvider.createRelation does, and returns once all are acknowledged.

    producer: settings of the Java producer, serializers included. topic: of all records; None: the column `topic` names
    it. Raises Py4JJavaError if a task failed for good.
    """
    jvm = spark._jvm
    jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution.java, dict(producer), jvm.scala.Option.apply(topic))
