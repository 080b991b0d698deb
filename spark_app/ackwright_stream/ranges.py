"""Which lanes and offsets each task of a batch processes, read from the execution that Spark is about to run."""

from __future__ import annotations

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.spark_internals.execution import Execution, source_ranges, task_inputs


def tasks(execution: Execution) -> tuple[Task, ...]:
    """The tasks of a batch, by their partition ids.

    Raises JobError(NOT_STATELESS) if a lane is split over several ranges (docs/protocol.md#rule-7).
    """
    of_batch = tuple(
        Task(
            slot,
            tuple(Range(Lane(o.topic, o.partition), o.start, o.until) for _, o in inputs),
            tuple(number for number, _ in inputs),
        )
        for slot, inputs in enumerate(task_inputs(execution))
    )
    lanes = [r.lane for task in of_batch for r in task.ranges]
    if len({*lanes}) != len(lanes):
        raise JobError(
            Reason.NOT_STATELESS,
            "a source partition is split over several ranges; remove minPartitions and maxRecordsPerPartition",
        )
    return of_batch


def of_stateful(execution: Execution) -> tuple[Task, ...]:
    """The ranges of a batch whose rows are shuffled, as one task; none without records.

    Raises JobError(UNEXPECTED) if a lane is split over several ranges.
    """
    ranges = tuple(Range(Lane(o.topic, o.partition), o.start, o.until) for o in source_ranges(execution))
    if len({r.lane for r in ranges}) != len(ranges):
        raise JobError(
            Reason.UNEXPECTED,
            "a source partition is split over several ranges; remove minPartitions and maxRecordsPerPartition",
        )
    return (Task(0, ranges, tuple(range(len(ranges)))),) if ranges else ()
