"""Spark's daemon of Python workers (spark.python.daemon.module), started with imports done: workers are forked from it, so that none of
them spends half a second of CPU on importing pyarrow and Kafka's client again, at the start and after each death of a worker.

Nothing here may start a thread or open a connection: a fork does not inherit the one and must not share the other.
"""

from __future__ import annotations

import pyspark.daemon
import pyspark.worker
from pyspark.sql.pandas import serializers, types  # noqa: F401

from ackwright_stream.delivery import at_most_once, exactly_once  # noqa: F401

if __name__ == "__main__":
    pyspark.daemon.manager()
