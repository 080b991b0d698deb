"""PySpark's Python workers: the daemon that forks them, and the connection from which a task reads its rows.

Importing this module imports nothing of PySpark, so the driver and the daemon can both do so cheaply.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from typing import Any

WorkerMain = Callable[[BufferedReader, Any], None]


@dataclass
class TaskInput:
    """The connection from which this worker's current task reads its rows."""

    connection: BufferedReader | None = None  # None: not known, because Spark's own daemon forked this worker

    def recording(self, main: WorkerMain) -> WorkerMain:
        """PySpark's main function of a task, which records here the connection that it reads."""

        def task(incoming: BufferedReader, outgoing: Any) -> None:
            self.connection = incoming
            main(incoming, outgoing)

        return task

    @property
    def continues(self) -> bool:
        """Whether the JVM wrote anything behind the rows, or still holds the connection.

        Behind Arrow's end of a complete input Spark writes SpecialLengths.END_OF_STREAM, which its worker reads only
        after the task's function has returned. Call it once the rows are exhausted. Raises RuntimeError if the
        connection is not known.
        """
        if self.connection is None:
            raise RuntimeError("the connection of this task is not known")
        return bool(self.connection.peek(1))


def fork_workers(task_input: TaskInput) -> None:
    """Runs PySpark's daemon, whose workers record their connection in task_input. Does not return until Spark ends it.

    A worker collects garbage after each task. Frozen objects are left out of that, which would otherwise take 50 ms.
    """
    import pyspark.daemon
    import pyspark.worker
    from pyspark.sql.pandas import serializers, types  # noqa: F401 (workers inherit what is imported before the fork)

    pyspark.daemon.worker_main = task_input.recording(pyspark.daemon.worker_main)
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
