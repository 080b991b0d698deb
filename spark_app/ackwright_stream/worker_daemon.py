"""Spark's daemon of Python workers (spark.python.daemon.module), started with imports done: workers are forked from it, so that none of
them spends half a second of CPU on importing pyarrow and Kafka's client again, at the start and after each death of a worker.

Spark's worker collects garbage after each task, all of it: with these imports that takes 50 ms, ten times as much as a lane's own work in
Python. What the daemon has imported lives as long as the worker anyway, so the collector is told to leave it out (gc.freeze).

It also lets a task know where its input ends (task_input).

Nothing here may start a thread or open a connection: a fork does not inherit the one and must not share the other.
"""

from __future__ import annotations

import gc

import confluent_kafka.admin  # noqa: F401
import pandas  # noqa: F401 (Spark's worker imports it for Arrow's batches)
import pyspark.daemon
import pyspark.worker
from pyspark.sql.pandas import serializers, types  # noqa: F401

from ackwright_stream import task_input
from ackwright_stream.delivery import at_most_once, exactly_once  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.worker_main = task_input.remembered(pyspark.daemon.worker_main)
    gc.collect()
    gc.freeze()
    pyspark.daemon.manager()
