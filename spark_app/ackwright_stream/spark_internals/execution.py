"""Spark's execution of a batch (QueryExecution): the offsets that its tasks read, and rows that left its steps.

Texts are read in place of objects where a batch waits for them, because each call across the gateway takes 0.2 ms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

# In the text of Spark's case class: topic-partition, fromOffset, untilOffset.
_RANGE_CLASS = "KafkaOffsetRange("
_RANGE_TEXT = re.compile(re.escape(_RANGE_CLASS) + r"([\w.-]+)-(\d+),(\d+),(\d+),")
# For java.util.regex: each match is what precedes a range, with the range's beginning; the last match is all the rest.
_JAVA_RANGE = r"(?s).*?(?:" + re.escape(_RANGE_CLASS) + r"([\w.-]+-\d+,\d+,\d+,)|\z)"
# The text of a sequence with exactly one dependency.
_ONE_TO_ONE = re.compile(r"^\w+\(org\.apache\.spark\.OneToOneDependency@[0-9a-f]+\)$")
_OUTPUT_ROWS = "numOutputRows"
_OUT_OF_RANGE = ("offsetOutOfRange", "dataLoss")  # metrics of Spark's Kafka source


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


class NumberedRange(NamedTuple):
    """What one partition of the source reads in a batch."""

    number: int  # the partition's number in the batch, which spark_partition_id() returns
    offsets: OffsetRange


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


def task_inputs(execution: Execution) -> list[tuple[NumberedRange, ...]]:
    """The ranges that each task reads, by the task's partition id.

    The source's partitions are merged in one place, the coalesce that the job adds itself (merged()); every other step
    must be one-to-one. Raises JobError(NOT_STATELESS) if one is not: a shuffle, a union or another coalesce.
    """
    scan = execution.java.executedPlan().collectLeaves().head()
    if scan.getClass().getSimpleName() == "LocalTableScanExec":  # in place of a source without new records
        return []
    source, tasks = _source_and_tasks(execution.java.toRdd())
    ranges = _offset_ranges(scan, source) if source is not None else []
    return [tuple(NumberedRange(i, ranges[i]) for i in numbers) for numbers in tasks]


def source_ranges(execution: Execution) -> list[OffsetRange]:
    """What a batch reads of its source, whatever stands between source and output; none without records.

    A transform that uses the source several times reads the same ranges each time. Raises JobError(UNEXPECTED) if it
    does not.
    """
    leaves = execution.java.executedPlan().collectLeaves()
    scans = [scan for scan in map(leaves.apply, range(leaves.size())) if _is_stream(scan)]
    of_scans = [_ranges_in(_ranges_alone(scan.inputPartitions())) for scan in scans]
    if any(sorted(ranges) != sorted(of_scans[0]) for ranges in of_scans):
        raise JobError(Reason.UNEXPECTED, "the uses of the source in one batch read different records; report this")
    if scans and len(of_scans[0]) != scans[0].inputPartitions().size():
        raise _unknown_form(str(scans[0].inputPartitions().toString()))
    return of_scans[0] if of_scans else []


def merged(frame: DataFrame, tasks: int) -> DataFrame:
    """The frame with at most this many tasks, each of which runs several partitions of the source one after the other.

    spark_partition_id() below it is still the number of the source's partition.
    """
    return frame.coalesce(tasks)


def _offset_ranges(scan: Any, source: Any) -> list[OffsetRange]:
    """What each partition of the source reads, in the order of their numbers. source: the DataSourceRDD.

    The text of all partitions is one call across the gateway; a call for each of 256 partitions would take 0.2 s.
    """
    is_stream = _is_stream(scan)
    if is_stream:
        text = _ranges_alone(scan.inputPartitions())
    else:  # a frame that is derived from foreachBatch's
        text = " ".join(str(partition.inputPartitions().toString()) for partition in source.partitions())
    ranges = _ranges_in(text)
    if len(ranges) != source.getNumPartitions():
        raise _unknown_form(str(scan.inputPartitions().toString()) if is_stream else text)
    return ranges


def _is_stream(scan: Any) -> bool:
    return bool(scan.getClass().getSimpleName() == "MicroBatchScanExec")


def _ranges_in(text: str) -> list[OffsetRange]:
    return [OffsetRange(m[1], int(m[2]), int(m[3]), int(m[4])) for m in _RANGE_TEXT.finditer(text)]


def _unknown_form(form: str) -> JobError:
    return JobError(
        Reason.UNEXPECTED,
        f"Spark's offset ranges have an unknown form ({form[:200]}); this Spark version is not supported",
    )


def _ranges_alone(partitions: Any) -> str:
    """The ranges in the text of these partitions of the source, without the settings of a consumer beside each.

    The JVM leaves them out: an answer above 8 KB takes 40 ms longer. The gateway writes it in pieces, and TCP delays
    the last one (Nagle's algorithm) until Python's side acknowledges the others, which is delayed as well.
    """
    java = SparkContext._active_spark_context._jvm.java
    text = java.lang.StringBuilder().append(partitions)
    return str(java.util.regex.Pattern.compile(_JAVA_RANGE).matcher(text).replaceAll(f"{_RANGE_CLASS}$1 "))


def _source_and_tasks(rdd: Any) -> tuple[Any, list[list[int]]]:
    """The DataSourceRDD at the bottom of an RDD, and the numbers of its partitions that each partition of the RDD runs.

    None and no partitions for a batch without records.
    """
    tasks: list[list[int]] | None = None
    while True:
        dependencies = rdd.dependencies()
        if _ONE_TO_ONE.match(dependencies.toString()):
            rdd = dependencies.head().rdd()
            continue
        name = rdd.getClass().getSimpleName()
        if name == "DataSourceRDD":
            return rdd, [[i] for i in range(rdd.getNumPartitions())] if tasks is None else tasks
        if name == "EmptyRDDWithPartitions":  # into which Spark merges no partitions at all
            return None, []
        if name == "CoalescedRDD" and tasks is None:
            as_text = SparkContext._active_spark_context._jvm.java.util.Arrays.toString
            tasks = [_indexes(as_text(partition.parentsIndices())) for partition in rdd.partitions()]
            rdd = dependencies.head().rdd()
            continue
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


def _indexes(text: str) -> list[int]:
    """From the text of an array, such as "[0, 1]"."""
    return [int(n) for n in text.strip("[]").split(",") if n]


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


def reads_out_of_range(execution: Execution) -> bool:
    """Whether a task of an executed batch requested an offset of the source that was not there any more."""
    metrics = execution.java.executedPlan().collectLeaves().head().metrics()
    return any(int(metrics.apply(name).value()) for name in _OUT_OF_RANGE)


def observed_metrics(frame: DataFrame) -> dict[str, dict[str, int]]:
    """The integers that DataFrame.observe counted in the frame's last action, by name and field."""
    return metrics_of(execution_of(frame))


def metrics_of(execution: Execution) -> dict[str, dict[str, int]]:
    """The same of a batch of a stream that was executed.

    pyspark.sql.Observation would need a listener, and allows a name only once.
    """
    metrics = execution.java.observedMetrics()
    names = metrics.keys().toSeq()
    counts: dict[str, dict[str, int]] = {}
    for i in range(names.size()):
        row = metrics.apply(names.apply(i))
        fields = row.schema().fieldNames()
        counts[names.apply(i)] = {fields[j]: int(row.get(j)) for j in range(len(fields))}
    return counts


def observed_after(query: StreamingQuery, batch: int) -> list[tuple[int, Mapping[str, Mapping[str, Any]]]]:
    """What DataFrame.observe counted in each later batch of a stream: (batch, counts by name and field), oldest first.

    At most as many as Spark keeps. StreamingQuery.recentProgress would read each of them from JSON, every time.
    """
    recent = query._jsq.recentProgress()
    later = []
    for i in reversed(range(len(recent))):
        number = int(recent[i].batchId())
        if number <= batch:
            break
        later.append((number, json.loads(recent[i].json()).get("observedMetrics") or {}))
    return later[::-1]


def write_to_kafka(spark: SparkSession, execution: Execution, producer: Mapping[str, str], topic: str | None) -> None:
    """Writes rows as Spark's KafkaSourceProvider.createRelation does, and returns once all are acknowledged.

    producer: settings of the Java producer, serializers included. topic: of all records; None: the column `topic` names
    it. Raises Py4JJavaError if a task failed for good.
    """
    jvm = spark._jvm
    jvm.org.apache.spark.sql.kafka010.KafkaWriter.write(execution.java, dict(producer), jvm.scala.Option.apply(topic))
