"""A stream that is stopped amid a batch, whose function then fails.

Spark searches the text of such an error for an interruption, by a pattern that recurses with each character
(StreamExecution.PROXY_ERROR). So it gets a short one, failures.BatchEnded.
"""

from __future__ import annotations

import threading

import pytest
from pyspark.sql import DataFrame, SparkSession

from ackwright_stream.failures import BatchEnded
from waiting import WAIT, wait_until

# As of a call into Spark that has failed.
LONG = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.toArrow.\n" + "\tat x.Y.z\n" * 1_000


@pytest.mark.parametrize(
    ("error", "reported"), [(BatchEnded(), True), (RuntimeError(LONG), False)], ids=["short", "control"]
)
def test_the_thread_of_the_stream_ends_in_order_if_the_error_is_short(
    spark: SparkSession, error: Exception, reported: bool
) -> None:
    """Control: behind a long one the thread has ended by a StackOverflowError, and the stream knows of no error."""
    begun, stopped = threading.Event(), threading.Event()

    def fail(_rows: DataFrame, _number: int) -> None:
        begun.set()
        stopped.wait(WAIT)
        raise error

    query = spark.readStream.format("rate").load().writeStream.foreachBatch(fail).start()
    stop = threading.Thread(target=query.stop)
    try:
        assert begun.wait(WAIT)
        stop.start()
        wait_until(lambda: not query.isActive, "the stream is stopped")
    finally:
        stopped.set()
    stop.join(WAIT)
    assert (query.exception() is not None) is reported
