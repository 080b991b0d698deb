"""Which lane and offsets each task of a batch processes, read from the execution that Spark is about to run."""

from __future__ import annotations

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range
from ackwright_stream.spark_internals.execution import Execution, task_inputs


def task_ranges(execution: Execution) -> tuple[Range, ...]:
    """The range of each task, by the task's partition id.

    Raises JobError(NOT_STATELESS) unless tasks and source partitions match one to one (docs/protocol.md#rule-7).
    """
    ranges: list[Range] = []
    for task, inputs in enumerate(task_inputs(execution)):
        if len(inputs) != 1:
            raise JobError(
                Reason.NOT_STATELESS,
                f"task {task} reads {len(inputs)} ranges instead of one; do not group input partitions",
            )
        (offsets,) = inputs
        ranges.append(Range(Lane(offsets.topic, offsets.partition), offsets.start, offsets.until))
    if len({r.lane for r in ranges}) != len(ranges):
        raise JobError(
            Reason.NOT_STATELESS,
            "a source partition is split over several tasks; remove minPartitions and maxRecordsPerPartition",
        )
    return tuple(ranges)
