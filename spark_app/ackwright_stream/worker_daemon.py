"""Spark's daemon of Python workers (spark.python.daemon.module), which imports modules before it forks workers.

Without it every worker spends half a second of CPU on importing pyarrow and Kafka's client, at the start and after each
death of a worker. It also lets a task know whether its input is complete (task_input).

Nothing here may start a thread or open a connection: a fork does not inherit the one and must not share the other.
"""

from __future__ import annotations

import confluent_kafka.admin  # noqa: F401
import pandas  # noqa: F401 (Spark's worker imports it for Arrow's batches)

from ackwright_stream.delivery import at_most_once, exactly_once  # noqa: F401
from ackwright_stream.spark_internals.worker import fork_workers
from ackwright_stream.worker_state import STATE

if __name__ == "__main__":
    fork_workers(STATE.input)
