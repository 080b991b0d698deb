"""Whether a Python worker got all rows of its task.

Spark's worker takes the end of its connection for the end of its rows: Arrow's reader ends without an error when the stream ends between
two messages, and that is how it ends when the JVM's part of the task fails or dies. What was committed then would be a part of a range with
the position of the whole. Spark tells a complete input by a mark behind Arrow's end (SpecialLengths.END_OF_STREAM), which its worker reads
only when the task's function is through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import Any, TypeVar

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

T = TypeVar("T")

_of_this_task: list[BufferedReader] = []


def remembered(main: Callable[[BufferedReader, Any], None]) -> Callable[[BufferedReader, Any], None]:
    """Spark's main function of a task in a worker, of which whole() knows where it reads."""

    def task(incoming: BufferedReader, outgoing: Any) -> None:
        _of_this_task[:] = [incoming]
        main(incoming, outgoing)

    return task


def whole(rows: Iterator[T]) -> Iterator[T]:
    """The rows, of which the caller learns the end only if it is the end. Raises JobError if they were cut off."""
    if not _of_this_task:
        raise JobError(
            Reason.UNEXPECTED,
            "whether a task gets all its rows cannot be known here: spark.python.daemon.module has to be ackwright_stream.worker_daemon",
        )
    yield from rows
    # Failure window: the task has failed in the JVM, or the JVM is gone, and the worker is about to commit the rows that had come by then.
    if not _of_this_task[0].peek(1):
        raise JobError(
            Reason.UNEXPECTED, "the rows of this task were cut off: its part in the JVM has failed, which says why"
        )
