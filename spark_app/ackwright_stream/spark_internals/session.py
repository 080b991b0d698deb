"""Settings of a session, its process and its JVM that Spark does not publish."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason

_OUT_OF_MEMORY = 52  # org.apache.spark.util.SparkExitCode.OOM
_EXIT_S = 5.0

if TYPE_CHECKING:  # imported by a program that has not started its JVM yet
    from pyspark.sql import SparkSession


def pin_threads() -> None:
    """Pairs each Python thread with a separate JVM thread; call it before the session starts.

    The local properties of a batch's Spark job belong to the JVM thread that submits it, and tasks read their ranges
    from them.
    """
    os.environ["PYSPARK_PIN_THREAD"] = "true"


def start_jvm(settings: Mapping[str, str]) -> None:
    """Starts the session's JVM in the background, so that it loads its classes while Python imports its modules.

    settings: those of the session, of which the JVM needs some before it starts. Returns at once. The session's start
    waits for the JVM; if it does not start, the session tries again and reports why.
    """
    pin_threads()
    from pyspark import SparkConf, SparkContext  # not in the thread: packages that import one another need one thread

    conf = SparkConf()
    for name, value in settings.items():
        conf.set(name, value)

    def start() -> None:
        with suppress(Exception):
            SparkContext._ensure_initialized(conf=conf)

    threading.Thread(target=start, name="start JVM", daemon=True).start()


def disable_local_checksums(spark: SparkSession) -> None:
    """Local files of this driver get no checksum file beside them.

    Without Hadoop's native library each new file costs a process (chmod), and each entry of the checkpoint's logs would
    be two files.
    """
    configuration = spark._jsc.hadoopConfiguration()
    spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration).setWriteChecksum(False)


def set_hadoop(spark: SparkSession, settings: Mapping[str, str]) -> None:
    """Settings of Hadoop for the files that Spark reads and writes from now on; Spark logs none of them."""
    configuration = spark._jsc.hadoopConfiguration()
    for name, value in settings.items():
        configuration.set(name, value)


def drop_functions(spark: SparkSession, names: Iterable[str]) -> None:
    """Removes functions of SQL from the session, and from those that are cloned from it.

    Raises JobError if one of them is still there.
    """
    registry = spark._jsparkSession.sessionState().functionRegistry()
    for name in names:
        identifier = spark._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        registry.dropFunction(identifier)
        if registry.functionExists(identifier):
            raise JobError(Reason.UNEXPECTED, f"Spark has not dropped its function {name}; report it")


def require_running(spark: SparkSession) -> None:
    """Raises JobError if the JVM has ended, or has stopped the session."""
    try:
        stopped = spark.sparkContext._jsc.sc().isStopped()
    except Exception as e:
        raise _end_of_jvm(spark) from e
    if stopped:
        raise JobError(Reason.UNEXPECTED, "Spark has stopped; its log tells why")


def stop(spark: SparkSession) -> None:
    """Stops the session, if its JVM still answers; if not, the failure that ended it is the one to report."""
    with suppress(OSError, Py4JError):
        spark.stop()


def _end_of_jvm(spark: SparkSession) -> JobError:
    """Why the JVM has ended, by its exit code. It no longer answers; a moment may pass until its process is gone."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    code = None
    if process is not None:
        with suppress(TimeoutExpired):
            code = process.wait(_EXIT_S)
    if code == _OUT_OF_MEMORY:
        return JobError(
            Reason.BATCH_FAILED,
            "Spark's JVM ran out of memory; raise spec.spark.driver.memory, or read fewer records in a batch with "
            "source.maxOffsetsPerTrigger",
        )
    how = "" if code is None else f" with exit code {code}" if code >= 0 else f" by signal {-code}"
    return JobError(Reason.UNEXPECTED, f"Spark's JVM has ended{how}; its log tells why")


def silence_analysis_log() -> None:
    """Stops PySpark from logging each analysis error, whose text the exception has, with two stack traces."""
    logging.getLogger("SQLQueryContextLogger").disabled = True


def silence_gateway_log() -> None:
    """Limits py4j's log to errors; below that it logs every call into the JVM."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
