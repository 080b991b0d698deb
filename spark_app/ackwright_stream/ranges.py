"""Which offsets each task of a batch reads, taken from the physical plan that Spark is about to run.

The plan gives its rows as an RDD. Its partitions' ranges are those of the DataSourceRDD at the bottom, as long as every step on the way is
one-to-one; a shuffle, a union or a coalesce on the way would break the link between a task and a lane.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range

# Texts in place of objects, for each call across the gateway takes 0.2 ms, and they are on every batch's path. Of Spark's case class:
# topic-partition, fromOffset, untilOffset, preferred location. Of a sequence: its elements.
_RANGE = re.compile(r"^KafkaOffsetRange\((?P<topic>.+)-(?P<partition>\d+),(?P<start>\d+),(?P<until>\d+),.*\)$")
_ONE_TO_ONE = re.compile(r"^\w+\(org\.apache\.spark\.OneToOneDependency@[0-9a-f]+\)$")


def running_plan(rows: DataFrame, query: StreamingQuery) -> Any:
    """The stream's own plan, of which foreachBatch was given the rows (Java's QueryExecution). Raises JobError if they are not of that
    plan: other records would be written than those whose positions move."""
    plan = query._jsq.streamingQuery().lastExecution()
    if not rows._jdf.queryExecution().logical().rdd().equals(plan.toRdd()):
        raise JobError(
            Reason.UNEXPECTED, "Spark gave rows that are not of the plan that runs; this Spark version is not supported"
        )
    return plan


def task_ranges(rdd: Any) -> tuple[Range, ...]:
    """The range of each task, by the task's partition id, of the RDD of a batch's rows (Java's). Raises JobError(NOT_STATELESS) if tasks
    and source partitions do not match one to one, or if one lane is split over several tasks. (rule 7)"""
    found: list[Range] = []
    # Spark sees to it that partitions are in the order of their numbers (RDD.partitions).
    for index, part in enumerate(_source(rdd).partitions()):
        inputs = part.inputPartitions()
        if inputs.size() != 1:
            raise JobError(
                Reason.NOT_STATELESS,
                f"task {index} reads {inputs.size()} ranges instead of one; do not group input partitions",
            )
        text = inputs.apply(0).offsetRange().toString()
        m = _RANGE.match(text)
        if not m:
            raise JobError(
                Reason.UNEXPECTED,
                f"Spark's offset range {text} has an unknown form; this Spark version is not supported",
            )
        found.append(Range(Lane(m["topic"], int(m["partition"])), int(m["start"]), int(m["until"])))
    lanes = {r.lane for r in found}
    if len(lanes) != len(found):
        raise JobError(
            Reason.NOT_STATELESS,
            "a source partition is split over several tasks; remove minPartitions and maxRecordsPerPartition",
        )
    return tuple(found)


def _source(rdd: Any) -> Any:
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
            f"the transform is not stateless: {name} ({kind}) stands between source and sink; remove what shuffles or merges rows "
            "(GROUP BY, DISTINCT, JOIN, ORDER BY, LIMIT, UNION, repartition)",
        )
