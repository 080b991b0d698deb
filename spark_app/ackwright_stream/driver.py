"""A driver's life: check, take the pipeline, run the query, restart it from the positions after a transient failure.

With a standby (spec.standby) it takes the pipeline only when no other driver owns it, and stands by again when another
one has deposed it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import delivery, ownership, schemas, source, state_bucket, topic_limits, transform
from ackwright_stream.backoff import Backoff
from ackwright_stream.cluster import Cluster
from ackwright_stream.delivery.batch_size import BatchSize
from ackwright_stream.delivery.claims import FailedBatch
from ackwright_stream.errors import JobError, combined
from ackwright_stream.executors import Executors
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query, QueryFailed, sink_columns
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import StartPart, State
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.base import Sink
from ackwright_stream.spark_internals import executors, memory, session, version
from ackwright_stream.standby import Standby, announced
from ackwright_stream.warm_up import start_workers, warm_up

_ENDS_EVERY_S = 1.0
_MEMORY_EVERY_S = 10.0  # executors send a heartbeat as often
_EVENT_LOG = "spark.eventLog.enabled"
log = logging.getLogger(__name__)


class Driver:
    """One driver of one pipeline."""

    def __init__(self, job: JobSpec, progress: Progress, stop: threading.Event) -> None:
        self._job, self._progress = job, progress
        self._stop = stop  # set it to drain and end
        self._delivery = delivery.for_job(job)
        self._standby: Standby | None = None
        self._proven = False  # whether it has owned the pipeline or stood by, so that its checks have passed long ago
        self._backoff = Backoff(job.restart)
        self._number: int | None = None  # once it has owned the pipeline
        self._size: BatchSize | None = None  # of the batches, once it has owned the pipeline
        self._root_cause: JobError | None = None  # of the failures in a row
        self._failed_batch: FailedBatch | None = None  # of the query before, until its claims are counted
        self._executors: Executors | None = None  # with autoscaling, once Spark has started
        self._unread_state: str | None = None  # as QueryFailed.unread_state, of the last query that had one
        self._ended_executors: frozenset[str] = frozenset()

    def run(self) -> None:
        """Returns when drained or, for a bounded run, complete.

        Raises JobError; if no batch was run before it, nothing was written.
        """
        with ThreadPoolExecutor(1) as aside:  # Kafka is checked while Spark starts, which takes seconds
            checked: Future[tuple[Cluster, Mapping[str, int]]] = aside.submit(_check_and_read, self._job)
            start = self._progress.start
            start.ended(StartPart.IMPORTS)
            started = time.monotonic()
            spark = self._start_spark()
            log.info("Spark %s is up after %.1f s", spark.version, time.monotonic() - started)
            start.ended(StartPart.JVM, time.monotonic() - (time.time() - spark.sparkContext.startTime / 1000))
            start.ended(StartPart.SPARK)
            if self._job.autoscaling:
                self._executors = Executors(spark, self._job.autoscaling, self._progress)
            threading.Thread(target=self._follow_memory, args=(spark,), name="memory", daemon=True).start()
            try:
                if self._delivery.uses_workers(registry.for_driver(self._job, None)):
                    start_workers(spark, self._job.slots)
                if self._job.schema_registry:
                    checked.result()  # a schema is registered only for a pipeline that can run
                    self._job = schemas.resolved(spark, self._job, register=True)
                output = _output(spark, self._job)
                start.ended(StartPart.TRANSFORM)
                cluster, limits = checked.result()
                routed = registry.chooses_topic(self._job, output)
                self._job = topic_limits.with_topic_limits(self._job, limits, routed=routed)
                self._delivery = delivery.for_job(self._job)
                registry.for_driver(self._job, cluster).prepare(output)
                start.ended(StartPart.CHECKS)
                headers = self._job.state is not None or transform.needs_headers(output)
                self._run_queries(spark, cluster, headers=headers)
            finally:
                session.stop(spark)

    def _start_spark(self) -> SparkSession:
        """A session, without the event log if Spark does not start with it.

        The log is for people; delivery does not need it. Raises JobError if Spark does not start without it either.
        """
        try:
            return start_spark(self._job)
        except JobError as e:
            if self._job.spark.get(_EVENT_LOG) != "true":
                raise
            spark = start_spark(replace(self._job, spark={**self._job.spark, _EVENT_LOG: "false"}))
            log.warning("Spark started only without its event log; the first attempt failed: %s", e)
            self._progress.event_log_error = e.failure.message
            return spark

    def _run_queries(self, spark: SparkSession, cluster: Cluster, *, headers: bool) -> None:
        threading.Thread(target=self._follow_ends, args=(cluster,), name="ends", daemon=True).start()
        sink = registry.for_driver(self._job, cluster)
        if self._job.standby:
            address = self._progress.address and announced(self._progress.address)
            self._standby = Standby(
                sink,
                self._stop,
                self._job.standby,
                address=address,
                require_ready=lambda: self._require_ready(spark),
            )
            if address:
                sink.announce(address)
            self._progress.member = lambda: sink.member() if sink.is_member() else None
        try:
            while True:
                if self._standby:
                    self._stand_by(self._standby, spark, cluster, sink, headers=headers)
                if self._stop.is_set():
                    return
                try:
                    self._attempt(spark, cluster, sink, headers=headers)
                    return
                except QueryFailed as failed:
                    session.require_running(spark)  # without its JVM, no other attempt of this process can succeed
                    self._end_or_continue(failed, executor_lost=self._has_lost_executor(spark))
                    failed.release()
                except Exception:
                    session.require_running(spark)  # the end of its JVM is the cause of whatever else failed
                    raise
                self._wait(sink)
        finally:
            self._progress.member = lambda: None  # the standby need not wait for the end of this process

    def _stand_by(self, standby: Standby, spark: SparkSession, cluster: Cluster, sink: Sink, *, headers: bool) -> None:
        """Waits until this driver may take the pipeline, or is to end."""
        started = time.monotonic()

        def begin() -> None:
            if self._number is not None:
                standby.deposed()
            self._forget_ownership()
            log.info("another driver owns %s; this one stands by", self._job.group)
            warm_up(spark, self._job, cluster, sink, headers=headers)
            self._progress.stands_by()

        if standby.wait(begin):
            self._proven = True
            log.info("stood by for %.1f s", time.monotonic() - started)
            # Whatever it did before, another driver has owned the pipeline since.
            self._root_cause, self._backoff = None, Backoff(self._job.restart)

    def _require_ready(self, spark: SparkSession) -> None:
        """Raises JobError if this driver could not take the pipeline."""
        session.require_running(spark)
        if self._executors and self._number is None:
            self._executors.reset()  # one that was requested before may connect late

    def _forget_ownership(self) -> None:
        """Begins as another driver, with the smallest number of executors: the owner needs the others' room."""
        self._number = self._size = self._failed_batch = None  # another driver has moved the positions since
        if self._executors:
            self._executors.reset()

    def _attempt(self, spark: SparkSession, cluster: Cluster, sink: Sink, *, headers: bool) -> None:
        """Takes the pipeline and runs one query. Returns when it is drained or complete. Raises QueryFailed."""
        started = time.monotonic()
        try:
            owned = ownership.take(self._job, cluster, sink, self._number)
        except JobError as e:
            raise QueryFailed(e) from e
        self._number, self._proven = owned.driver, True
        lanes = len(owned.positions)
        log.info(
            "driver %d owns %d lanes of %s after %.1f s",
            owned.driver,
            lanes,
            self._job.group,
            time.monotonic() - started,
        )
        self._progress.owns(owned.driver, owned.positions)
        self._progress.count(expired_records=owned.expired)
        self._count_claims(owned)
        self._progress.state(State.RUNNING)
        declared = self._delivery.batch_limit(lanes)
        reduced = self._size.limit if self._size and self._size.reduced else None
        smallest = self._job.source.smallest_batch
        self._size = (
            None if declared is None or smallest is None else BatchSize.from_limits(declared, smallest, reduced)
        )
        while True:
            query = Query(
                spark,
                self._job,
                owned,
                self._progress,
                self._stop,
                headers=headers,
                size=self._size,
                executors=self._executors,
                unread_state=self._unread_state,
            )
            try:
                query.run()
            finally:
                self._size = query.size
            if self._stop.is_set() or not query.limit_has_grown:
                return
            # No task of it runs any more: nobody has to be fenced.
            owned = replace(owned, positions=query.positions, decision=query.decision)

    def _count_claims(self, owned: Ownership) -> None:
        """Counts what the failed batch of the query before had claimed: the positions tell it now."""
        batch, self._failed_batch = self._failed_batch, None
        if batch is not None and (lost := batch.uncounted(owned.before)):
            log.warning("%d offsets of the failed batch had been claimed, and count as abandoned", lost)
            self._progress.count(abandoned_records=lost)

    def _has_lost_executor(self, spark: SparkSession) -> bool:
        """Whether an executor of a stateful pipeline has ended since the last failure.

        The batch fails then, and nothing is wrong with it: of a stateless pipeline only tasks would run again. If Spark
        learns of the end after the failure, the next failure is excused in place of this one.
        """
        if self._job.state is None:
            return False
        before, self._ended_executors = self._ended_executors, executors.ended(spark)
        return not self._ended_executors <= before

    def _end_or_continue(self, failed: QueryFailed, *, executor_lost: bool) -> None:
        """Counts the failure. Raises the error that ends this driver, if another attempt cannot help.

        executor_lost: whether it may be due to an executor that has ended. Spark itself ends a driver whose executors
        end too often.
        """
        self._failed_batch = failed.batch or self._failed_batch
        error, survives = failed.error, self._delivery.survives(failed.error)
        self._unread_state = failed.unread_state or self._unread_state
        # The next attempt has another batch, or a smaller one, down to the smallest: it need not fail like this one.
        if not (failed.limit_reduced or executor_lost or (survives and failed.batch_abandoned)):
            self._backoff = self._backoff.failed(failed.healthy_s * 1000)
        self._progress.failed(error)
        # A task of the attempt before may still be ending and fence this attempt's: such a conflict is not the cause of
        # the failures.
        if self._backoff.failures <= 1 or error.reason is not Reason.POSITION_CONFLICT or self._root_cause is None:
            self._root_cause = error
        if self._backoff.exhausted and self._root_cause is not error:
            raise self._root_cause from error
        if self._standby and error.reason is Reason.SUPERSEDED:
            if self._number is not None:
                self._standby.deposed()
            self._forget_ownership()  # also if the newer one has gone before this one stands by
            return
        # Two drivers that start at the same time conflict without owning the pipeline first.
        # Where the first driver has gone, a broker may have gone together with it.
        unproven = not self._proven and error.reason is not Reason.POSITION_CONFLICT
        if self._backoff.exhausted or unproven or (REASONS[error.reason].permanent and not survives):
            raise error

    def _wait(self, sink: Sink) -> None:
        """Waits for the next attempt.

        Raises JobError(GROUP_IN_USE) if another program moves the positions meanwhile.
        """
        self._progress.count(restarts=1)
        self._progress.state(State.RESTARTING)
        delay = self._backoff.delay_s(random.random())  # noqa: S311 (jitter)
        log.warning("the query failed and restarts from the positions in %.1f s: %s", delay, self._progress.last_error)
        self._stop.wait(delay)
        try:
            sink.require_sole_use()
        except JobError as e:
            if e.reason is Reason.GROUP_IN_USE:
                raise

    def _follow_memory(self, spark: SparkSession) -> None:
        """For the metrics only: a JVM that does not answer any more is noticed by those who need it."""
        with suppress(Exception):
            while True:
                use = memory.memory_use(spark)
                self._progress.memory = use
                self._progress.count_executors(use.executor_count)
                if self._stop.wait(_MEMORY_EVERY_S):
                    return

    def _follow_ends(self, cluster: Cluster) -> None:
        while not self._stop.is_set():
            try:
                self._progress.ends(cluster.ends(self._progress.lanes()))
            except JobError as e:
                self._progress.ends_unknown(e)
            self._stop.wait(_ENDS_EVERY_S)


def _check_and_read(job: JobSpec) -> tuple[Cluster, Mapping[str, int]]:
    """What check() returns, and the limits of the topics that the job writes to."""
    cluster = check(job)
    return cluster, topic_limits.limits_of_job(job, cluster)


def check(job: JobSpec) -> Cluster:
    """The source's cluster, if everything is there that a driver needs.

    Changes nothing. Raises JobError with the first problem.
    """
    cluster = Cluster(job)
    sink = registry.for_driver(job, cluster)
    if job.guarantee not in sink.supports:
        raise JobError(
            Reason.INVALID_SPEC,
            f"sink.{job.sink.kind} cannot deliver {job.guarantee}; choose one of {', '.join(sorted(sink.supports))}",
        )
    if job.source.dead_letter_fraction is not None and not sink.takes_dead_letters:
        raise JobError(Reason.INVALID_SPEC, f"sink.{job.sink.kind} has no dead letters; set source.onMalformed: skip")
    if job.state is not None and sink.decisions is None:
        raise JobError(Reason.INVALID_SPEC, f"sink.{job.sink.kind} takes no stateful pipeline; choose another sink")
    cluster.check(sink.topics)
    sink.check()
    if job.expects_positions:  # before a table is created for another place's rows
        ownership.require_known(job, sink, cluster.topology().lanes)
    state_bucket.check(job.state)
    return cluster


def check_transform(job: JobSpec) -> None:
    """Raises JobError if schemas or transform are wrong, or if the bucket of the state does not answer.

    Contacts no broker.
    """
    spark = start_spark(job)
    try:
        _output(spark, schemas.resolved(spark, job, register=False))
        state_bucket.check(job.state)
    finally:
        spark.stop()


def check_sink(job: JobSpec) -> None:
    """Raises JobError as check_transform(), or if the sink does not take the output.

    Contacts no broker, so it is for a sink that is not in Kafka.
    """
    spark = start_spark(job)
    try:
        job = schemas.resolved(spark, job, register=False)
        sink = registry.for_driver(job, None)
        _require_writable(sink, _output(spark, job))
        if job.expects_positions:
            ownership.require_known(job, sink)
        state_bucket.check(job.state)
    finally:
        spark.stop()


def _require_writable(sink: Sink, output: DataFrame) -> None:
    """Raises JobError if the sink does not take the output, or if the job may not write to it, for both reasons."""
    try:
        sink.check(output)
    except JobError as e:
        if e.reason is not Reason.TABLE_UNSUITABLE:
            raise  # the server, too, would refuse every other request, or not answer
        try:
            sink.require_permission()
        except JobError as also:
            raise combined([e, also]) from None
        raise
    sink.require_permission()


def _output(spark: SparkSession, job: JobSpec) -> DataFrame:
    return sink_columns(spark, source.read_stream(spark, job, "earliest"), job, registry.for_driver(job, None))


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
        remedy = "; install a Java runtime, 17 or newer, and check JAVA_HOME" if "JAVA_GATEWAY_EXITED" in str(e) else ""
        raise JobError(Reason.UNEXPECTED, f"Spark did not start: {cause(e).message}{remedy}") from e
    spark.sparkContext.setLogLevel("OFF")
    version.require_supported_version(spark)
    session.disable_local_checksums(spark)
    return spark
