"""One Spark query, from the positions that the driver owns to its end: drained, complete (a bounded run), or failed."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream import checkpoint, delivery, ownership, source, transform
from ackwright_stream.delivery.batch import Batch, BatchResult, Output
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Range
from ackwright_stream.progress import Progress
from ackwright_stream.ranges import task_ranges
from ackwright_stream.reports import State
from ackwright_stream.sinks.base import Sink
from ackwright_stream.spark_internals.execution import running_execution

_POLL_S = 0.25
log = logging.getLogger(__name__)


class QueryFailed(Exception):
    """An error that ended a query, and what the driver needs to decide how to continue."""

    def __init__(
        self,
        error: JobError,
        # seconds from the start to the current or failed batch; its own duration does not count as health
        healthy_s: float = 0.0,
        *,
        # whether all of the failed batch was abandoned, so that the next batch is another
        batch_abandoned: bool = False,
        next_limit: int | None = None,  # offsets of a batch from now on, if this one failed for its size
    ) -> None:
        super().__init__(error)
        self.error, self.healthy_s = error, healthy_s
        self.batch_abandoned, self.next_limit = batch_abandoned, next_limit

    def release(self) -> None:
        """Forgets where the error was raised.

        The stack holds producers. Their inits continue in the background, and would fence a later producer of this
        driver.
        """
        for e in (self, self.error):
            e.__traceback__ = e.__cause__ = e.__context__ = None


class Query:
    """Runs once.

    Spark's checkpoint is a fresh directory that is deleted afterwards: the positions alone say where to resume.
    """

    def __init__(
        self,
        spark: SparkSession,
        job: JobSpec,
        owned: Ownership,
        progress: Progress,
        stop: threading.Event,
        *,
        headers: bool = True,  # whether the records' headers are read, see transform.needs_headers()
        limit: int | None = None,  # offsets of a batch; None: no limit
    ) -> None:
        self._headers, self._limit = headers, limit
        self._spark, self._job, self._owned, self._progress, self._stop = spark, job, owned, progress, stop
        self._delivery = delivery.of(job)
        self._positions: dict[Lane, int] = dict(owned.positions)
        self._moved_at = dict.fromkeys(self._positions, time.monotonic())
        self._busy = threading.Lock()  # held by a batch and by heartbeats: a heartbeat would fence the lane's task
        self._started = time.monotonic()
        self._batch_started: float | None = None  # of the current or failed batch
        self._failure: BaseException | None = None  # of a batch
        self._batch_abandoned = False
        self._next_limit: int | None = None
        self._metrics: str | None = None  # as Output.metrics
        self._observed = -1  # the last batch whose observed metrics were counted

    def run(self) -> None:
        """Returns when the query was drained (stop is set) or, for a bounded run, is complete. Raises QueryFailed."""
        try:
            self._run_to_its_end()
        except StreamingQueryException as e:
            raise self._failed(cause(self._failure or e)) from e
        except JobError as e:
            raise self._failed(e) from e
        if self._failure is not None:
            raise self._failed(cause(self._failure)) from self._failure
        if not self._stop.is_set() and not self._job.available_now:
            raise self._failed(JobError(Reason.UNEXPECTED, "the stream ended although it is unbounded; report this"))

    def heartbeat(self) -> None:
        """Commits the positions of idle lanes again, or they would expire.

        Does nothing during a batch. (docs/protocol.md#rule-5)
        """
        due = time.monotonic() - self._job.heartbeat_interval_ms / 1000
        idle = [lane for lane, moved in self._moved_at.items() if moved < due]
        if not idle or not self._busy.acquire(blocking=False):
            return
        try:
            for lane in idle:
                if self._stop.is_set():
                    return
                self._owned.lanes.renew(lane, self._positions[lane])
                self._moved_at[lane] = time.monotonic()
        finally:
            self._busy.release()

    def _failed(self, error: JobError) -> QueryFailed:
        healthy_s = (self._batch_started or time.monotonic()) - self._started
        return QueryFailed(error, healthy_s, batch_abandoned=self._batch_abandoned, next_limit=self._next_limit)

    def _run_to_its_end(self) -> None:
        with checkpoint.throwaway(checkpoint.parent(self._job.checkpoint)) as place:
            query = self._start(place)
            try:
                self._watch(query)
            finally:
                query.stop()
                self._count_observed(query)

    def _start(self, place: str) -> StreamingQuery:
        lanes = self._owned.lanes
        output = self._delivery.attach(sink_columns(self._spark, self._read(), self._job, lanes.sink), lanes)
        self._metrics = output.metrics
        writer = (
            output.rows.writeStream.foreachBatch(lambda rows, number: self._process(rows, number, output))
            .option("checkpointLocation", place)
            .queryName(self._job.name)
        )
        if self._job.available_now:
            return writer.trigger(availableNow=True).start()
        return (
            writer.options(**checkpoint.RARELY_LOGGED)
            .trigger(processingTime=f"{self._job.trigger_interval_ms} milliseconds")
            .start()
        )

    def _read(self) -> DataFrame:
        starting: dict[str, dict[str, int]] = {}
        for lane, offset in self._positions.items():
            starting.setdefault(lane.topic, {})[str(lane.partition)] = offset
        return source.read_stream(
            self._spark, self._job, json.dumps(starting), headers=self._headers, limit=self._limit
        )

    def _watch(self, query: StreamingQuery) -> None:
        while query.isActive:
            if self._stop.is_set():
                self._progress.state(State.DRAINING)
                with self._busy:  # the running batch ends; a later one finds stop set and does nothing
                    return
            self.heartbeat()
            self._count_observed(query)
            query.awaitTermination(_POLL_S)
        failed = query.exception()
        if failed is not None:
            raise failed

    def _process(self, rows: DataFrame, number: int, output: Output) -> None:
        with self._busy:
            if self._stop.is_set():
                return
            self._batch_started = time.monotonic()
            try:
                self._deliver(rows, number, output)
                self._batch_started = None
            except BaseException as e:
                self._failure = e
                raise

    def _deliver(self, rows: DataFrame, number: int, output: Output) -> None:
        began = time.monotonic()
        execution = running_execution(rows, self._spark.streams.active[0])  # start() may not have returned yet
        ranges = task_ranges(execution)
        ranges_known = time.monotonic()
        self._check(ranges)
        fault_point("batch-start")
        lanes = self._owned.lanes
        try:
            # Spark runs a query's first batch also when there are no new records. It has no tasks.
            result = (
                self._delivery.deliver(Batch(rows, execution, ranges, output.metrics), lanes)
                if ranges
                else BatchResult({})
            )
        except Exception as e:
            self._next_limit = self._delivery.next_limit(ranges, time.monotonic() - began)
            abandoned = self._delivery.abandon(ranges, cause(e), lanes)
            self._batch_abandoned = abandoned == sum(r.until - r.start for r in ranges)
            self._progress.count(abandoned_records=abandoned)
            raise
        fault_point("batch-end")
        self._positions.update(result.positions)
        self._moved_at.update(dict.fromkeys(result.positions, time.monotonic()))
        self._progress.count(abandoned_records=result.abandoned, skipped_lanes=len(result.skipped))
        took = time.monotonic() - began
        self._progress.batch(number, result.positions, result.records, took)
        log.debug(
            "batch %d: %d lanes, %s records, %.3f s (%.3f s to find the ranges)",
            number,
            len(ranges),
            "observed" if output.metrics else result.records,
            took,
            ranges_known - began,
        )

    def _check(self, ranges: tuple[Range, ...]) -> None:
        for r in ranges:
            if r.lane not in self._positions:  # a partition that was added while the query runs
                self._positions[r.lane] = ownership.add(self._owned, r.lane, r.start)
            if self._positions[r.lane] != r.start:
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"Spark reads {r.lane} from {r.start}, but its position is {self._positions[r.lane]}; this driver "
                    "restarts from the positions",
                )

    def _count_observed(self, query: StreamingQuery) -> None:
        """Adds the counts that Spark observes: malformed records, and records written as far as Output.metrics says."""
        if self._metrics is None and not self._job.source.skip_malformed:
            return
        for progress in query.recentProgress:
            if progress["batchId"] > self._observed:
                self._observed = progress["batchId"]
                metrics = progress["observedMetrics"]
                self._progress.count(malformed_records=_metric(metrics, source.METRICS, "malformed"))
                self._progress.delivered(_metric(metrics, self._metrics, "records"))


def sink_columns(spark: SparkSession, raw: DataFrame, job: JobSpec, sink: Sink) -> DataFrame:
    """What the sink writes, from the columns of Spark's Kafka source.

    Raises JobError for a wrong schema or transform.
    """
    return sink.to_sink_columns(transform.apply_transform(spark, raw, job))


def _metric(metrics: Any, name: str | None, field: str) -> int:
    return int(metrics[name][field]) if metrics and name in metrics else 0
