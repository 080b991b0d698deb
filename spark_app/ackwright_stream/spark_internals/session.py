"""Settings of a session, its process and its JVM that Spark does not publish."""

from __future__ import annotations

import logging
import os

from pyspark.sql import SparkSession

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason


def pin_threads() -> None:
    """Pairs each Python thread with a separate JVM thread; call it before the session starts.

    The local properties of a batch's Spark job belong to the JVM thread that submits it, and tasks read their ranges
    from them.
    """
    os.environ["PYSPARK_PIN_THREAD"] = "true"


def disable_local_checksums(spark: SparkSession) -> None:
    """Local files of this driver get no checksum file beside them.

    Without Hadoop's native library each new file costs a process (chmod), and each entry of the checkpoint's logs would
    be two files.
    """
    configuration = spark._jsc.hadoopConfiguration()
    spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).setWriteChecksum(False)


def require_running(spark: SparkSession) -> None:
    """Raises JobError if the JVM has ended, or has stopped the session."""
    try:
        stopped = spark.sparkContext._jsc.sc().isStopped()
    except Exception as e:
        raise JobError(Reason.UNEXPECTED, f"Spark's JVM has ended: {e}; its log tells why") from e
    if stopped:
        raise JobError(Reason.UNEXPECTED, "Spark has stopped; its log tells why")


def silence_analysis_log() -> None:
    """Stops PySpark from logging each analysis error, whose text the exception has, with two stack traces."""
    logging.getLogger("SQLQueryContextLogger").disabled = True


def silence_gateway_log() -> None:
    """Limits py4j's log to errors; below that it logs every call into the JVM."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
