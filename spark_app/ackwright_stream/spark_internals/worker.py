"""PySpark's Python workers: the daemon that forks them, and the connection from which a task reads its rows.

Importing this module imports nothing of PySpark, so the driver and the daemon can both do so cheaply.
"""

from __future__ import annotations

import gc
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass
class StateConnections:
    """The connections over which this worker's processors (transformWithState) have read and changed their state.

    Spark 4.1.1 never closes one that its worker has ended. Each task would leave a socket and a port in use for as
    long as the JVM runs, until no port is free (SPARK-58932). At the end of a task, Spark interrupts the thread that
    still waits for requests, and Java closes the connection of an interrupted thread.
    """

    _open: list[socket.socket] = field(default_factory=list)

    def left_to_the_jvm(self, set_handle_state: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        """PySpark's method that sets the state of a processor, without the request at the end of a connection."""

        def set_state(client: Any, state: Any) -> None:
            if state.name != "CLOSED":
                set_handle_state(client, state)
                return
            client.handle_state = state
            self._open = [*filter(_is_open, self._open), client._client_socket]

        return set_state


def _is_open(connection: socket.socket) -> bool:
    """Whether the other end holds the connection."""
    try:
        return bool(connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
    except BlockingIOError:
        return True
    except OSError:
        return False


def fork_workers(task_input: TaskInput) -> None:
    """Runs PySpark's daemon, whose workers record their connection in task_input. Does not return until Spark ends it.

    A worker collects garbage after each task. Frozen objects are left out of that, which would otherwise take 50 ms.
    """
    import pyspark.daemon
    import pyspark.worker
    from pyspark.sql.pandas import serializers, types  # noqa: F401 (workers inherit what is imported before the fork)
    from pyspark.sql.streaming.stateful_processor_api_client import StatefulProcessorApiClient

    pyspark.daemon.worker_main = task_input.recording(pyspark.daemon.worker_main)
    set_handle_state = StateConnections().left_to_the_jvm(StatefulProcessorApiClient.set_handle_state)
    StatefulProcessorApiClient.set_handle_state = set_handle_state
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
