"""The driver's life: look, take the pipeline, run the query, and start it again from the positions when it fails for a passing reason."""

from __future__ import annotations

import logging
import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import ownership, source, transform
from ackwright_stream.backoff import Backoff
from ackwright_stream.cluster import Cluster
from ackwright_stream.delivery import exactly_once
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import State
from ackwright_stream.sinks import kafka_columns
from ackwright_stream.spark_internals import session, version

_ENDS_EVERY_S = 1.0
log = logging.getLogger(__name__)


class Driver:
    """One driver of one pipeline. stop: set it to drain and end."""

    def __init__(self, job: JobSpec, progress: Progress, stop: threading.Event) -> None:
        self._job, self._progress, self._stop = job, progress, stop

    def run(self) -> None:
        """Returns when drained or, for a bounded run, complete. Raises JobError; before the first batch nothing has been written then."""
        with ThreadPoolExecutor(1) as aside:  # Kafka is looked at while Spark starts, which takes seconds
            looked: Future[Cluster] = aside.submit(self._look)
            began = time.monotonic()
            spark = start_spark(self._job)
            log.info("Spark %s is up after %.1f s", spark.version, time.monotonic() - began)
            try:
                headers = transform.needs_headers(_transformed(spark, self._job))
                cluster = looked.result()
                self._run_queries(spark, cluster, headers=headers)
            finally:
                spark.stop()

    def _look(self) -> Cluster:
        cluster = Cluster(self._job)
        cluster.check()
        return cluster

    def _run_queries(self, spark: SparkSession, cluster: Cluster, *, headers: bool) -> None:
        backoff = Backoff(self._job.restart)
        owned: Ownership | None = None
        telling: JobError
        limit: int | None = None
        threading.Thread(target=self._follow_ends, args=(cluster,), name="ends", daemon=True).start()
        while not self._stop.is_set():
            began = time.monotonic()
            query: Query | None = None
            try:
                owned = ownership.take(self._job, cluster, owned.driver if owned else None)
                log.info(
                    "driver %d owns %d lanes of %s after %.1f s",
                    owned.driver,
                    len(owned.positions),
                    self._job.group,
                    time.monotonic() - began,
                )
                self._progress.owns(owned.driver, owned.positions)
                self._progress.count(expired_records=owned.expired)
                self._progress.state(State.RUNNING)
                limit = limit or exactly_once.limit(self._job, len(owned.positions))
                query = Query(spark, self._job, owned, self._progress, self._stop, headers=headers, limit=limit)
                query.run()
                return
            except JobError as e:
                if not (self._goes_on(e) and query is not None and query.gave_up):
                    backoff = backoff.failed(query.healthy_s * 1000 if query else 0)
                self._progress.failed(e)
                # A task of the attempt before may still be ending, and fence this one's: that tells nothing of why it goes wrong.
                if backoff.failures <= 1 or e.reason is not Reason.POSITION_CONFLICT:
                    telling = e
                at_start = (
                    owned is None and e.reason is not Reason.POSITION_CONFLICT
                )  # which two drivers that start at once cause
                if backoff.exhausted and telling is not e:
                    raise telling from e
                if self._is_final(e) or at_start or backoff.exhausted:
                    raise
                # What it was raised from holds producers, whose inits go on behind its back and would fence this driver's own later.
                e.__traceback__ = e.__cause__ = e.__context__ = None
            if query is not None and query.next_limit is not None:
                limit = query.next_limit
                log.warning(
                    "a batch outlasted its transactions; the next ones have %d offsets at most (source.maxOffsetsPerTrigger)",
                    limit,
                )
            self._progress.count(restarts=1)
            self._progress.state(State.RESTARTING)
            delay = backoff.delay_s(random.random())  # noqa: S311 (jitter)
            log.warning(
                "the query failed and starts again from the positions in %.1f s: %s", delay, self._progress.last_error
            )
            self._stop.wait(delay)
            self._look_again(cluster)

    def _is_final(self, error: JobError) -> bool:
        return REASONS[error.reason].permanent and not self._goes_on(error)

    def _goes_on(self, error: JobError) -> bool:
        """At-most-once gives up a malformed record's batch and goes on, however many there are in a row; the others would read it again for
        ever."""
        return self._job.guarantee is Guarantee.AT_MOST_ONCE and error.reason is Reason.MALFORMED_RECORD

    def _look_again(self, cluster: Cluster) -> None:
        try:
            cluster.check_group()
        except JobError as e:
            if e.reason is Reason.GROUP_IN_USE:
                raise

    def _follow_ends(self, cluster: Cluster) -> None:
        while not self._stop.is_set():
            try:
                self._progress.ends(cluster.ends(self._progress.lanes()))
            except JobError as e:
                self._progress.failed(e)
            self._stop.wait(_ENDS_EVERY_S)


def judge(job: JobSpec) -> None:
    """Raises JobError if the pipeline's schema or transform is wrong. Asks no broker."""
    spark = start_spark(job)
    try:
        _transformed(spark, job)
    finally:
        spark.stop()


def _transformed(spark: SparkSession, job: JobSpec) -> DataFrame:
    output = transform.apply_transform(spark, source.read_stream(spark, job, "earliest"), job)
    return kafka_columns.to_sink_columns(output, job.sink)


def start_spark(job: JobSpec) -> SparkSession:
    """A session with the job's settings. Raises JobError if Spark does not start."""
    session.pin_threads()
    builder = SparkSession.builder.appName(f"{job.namespace}.{job.name}").config(
        "spark.ui.showConsoleProgress", "false"
    )
    for name, value in job.spark.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except Exception as e:
        remedy = (
            "; install a Java runtime, 17 or newer, and look at JAVA_HOME" if "JAVA_GATEWAY_EXITED" in str(e) else ""
        )
        raise JobError(Reason.UNEXPECTED, f"Spark did not start: {cause(e).message}{remedy}") from e
    spark.sparkContext.setLogLevel("OFF")
    version.require_supported_version(spark)
    session.disable_local_checksums(spark)
    return spark
