"""Whether a Python worker received all rows of its task.

Spark's worker takes the end of its connection for the end of its rows: Arrow's reader ends without an error when the
stream ends between two messages, and it does so when the JVM's part of the task fails or dies. A commit would then pair
a part of the range with the position behind all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.spark_internals.worker import TaskInput

T = TypeVar("T")


def require_complete_input(rows: Iterator[T], task_input: TaskInput) -> Iterator[T]:
    """The task's rows. Raises JobError in place of ending if the connection ended before the rows did."""
    if task_input.connection is None:
        raise JobError(
            Reason.UNEXPECTED,
            "this worker cannot tell whether a task received all its rows: "
            "spark.python.daemon.module has to be ackwright_stream.worker_daemon",
        )
    yield from rows
    # Failure window: the task has failed in the JVM, or the JVM is gone, and the worker would commit the rows received
    # until then.
    if not task_input.continues:
        raise JobError(
            Reason.UNEXPECTED, "the rows of this task were cut off: its part in the JVM has failed and reports why"
        )
