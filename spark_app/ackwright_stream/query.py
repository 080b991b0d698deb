"""One Spark query, from the positions that the driver owns to its end: drained, complete (a bounded run), or failed."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream import checkpoint, delivery, ownership, source, state_start, transform
from ackwright_stream.cluster import Cluster
from ackwright_stream.decisions import Decision, state_unread
from ackwright_stream.delivery import dead_letters
from ackwright_stream.delivery.batch import Batch, BatchResult, Output
from ackwright_stream.delivery.batch_size import BatchSize
from ackwright_stream.delivery.claims import FailedBatch
from ackwright_stream.errors import JobError
from ackwright_stream.executors import Executors
from ackwright_stream.failures import BatchEnded, cause
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.progress import Progress
from ackwright_stream.ranges import of_stateful, tasks
from ackwright_stream.refused_rows import locate
from ackwright_stream.replay import ReplayStopped
from ackwright_stream.reports import StartPart, State
from ackwright_stream.sinks.base import Sink
from ackwright_stream.spark_internals.execution import (
    Execution,
    observed_after,
    reads_out_of_range,
    running_execution,
)
from ackwright_stream.state_log import StateChain

_POLL_S = 0.25
_REREAD_S = 1.0
_RANGES_NAMED = 5  # in the message of a failed batch
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
        # whether a transaction timed out, so that the next batches are smaller
        limit_reduced: bool = False,
        # of which more may be lost than was counted
        batch: FailedBatch | None = None,
        # loss_of() the state that Spark could not load; None: it did not fail for that
        unread_state: str | None = None,
    ) -> None:
        super().__init__(error)
        self.error, self.healthy_s, self.unread_state = error, healthy_s, unread_state
        self.batch_abandoned, self.limit_reduced, self.batch = batch_abandoned, limit_reduced, batch

    def release(self) -> None:
        """Forgets where the error was raised.

        The stack holds producers. Their inits continue in the background, and would fence a later producer of this
        driver.
        """
        for e in (self, self.error):
            e.__traceback__ = e.__cause__ = e.__context__ = None


class Query:
    """Runs once.

    Spark's checkpoint is a fresh directory that is deleted afterwards: the positions alone say where to resume. That of
    a stateful pipeline remains, and the last decision says what in it counts.
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
        size: BatchSize | None = None,  # of its batches; None: no limit
        executors: Executors | None = None,  # None: their number is fixed
        unread_state: str | None = None,  # QueryFailed.unread_state of an earlier query of this driver
    ) -> None:
        self._executors, self._unread_state = executors, unread_state
        self._headers, self.size = headers, size
        self._limit = size.limit if size else None  # Spark reads it once, when the query starts
        self._spark, self._job, self._owned, self._progress, self._stop = spark, job, owned, progress, stop
        self._delivery = delivery.for_job(job)
        self._positions: dict[Lane, int] = dict(owned.positions)
        self._busy = threading.Lock()  # held by a batch
        self._started = time.monotonic()
        self._batch_started: float | None = None  # of the current or failed batch
        self._failure: BaseException | None = None  # of a batch
        self._batch_abandoned = False
        self._failed_batch: FailedBatch | None = None
        self._metrics: str | None = None  # as Output.metrics
        self._letters = dead_letters.Window()
        self._newest_at = self._started  # when it was last known that no newer driver has settled
        self._delivered = -1  # the last batch
        self._observed = -1  # the last batch whose observed metrics were counted
        self._chain: StateChain | None = None  # of a stateful pipeline, once it runs
        # The last decision with other state than it names, which was lost; None: that one is there.
        self._recovered: Decision | None = None

    def run(self) -> None:
        """Returns when the query was drained (stop is set), is complete (a bounded run), or can run with larger batches
        (limit_has_grown). Raises QueryFailed."""
        try:
            self._run_to_its_end()
        except StreamingQueryException as e:
            raise self._failed(cause(self._failure or e)) from e
        except JobError as e:
            raise self._failed(e) from e
        except ReplayStopped:
            pass
        if self._failure is not None:
            raise self._failed(cause(self._failure)) from self._failure
        if self.limit_has_grown and not self._stop.is_set():
            return
        if not self._stop.is_set() and not self._job.available_now:
            raise self._failed(JobError(Reason.UNEXPECTED, "the stream ended although it is unbounded; report this"))
        try:
            self._owned.lanes.stop(self._positions)
        except JobError as e:  # nothing is lost: the positions are where they are, and expire as those after a crash
            log.warning("the final positions could not be recorded: %s", e.message)

    @property
    def positions(self) -> Mapping[Lane, int]:
        """Where each lane is now."""
        return self._positions

    @property
    def decision(self) -> Decision | None:
        """The last decision of a stateful pipeline, as it was made."""
        if self._chain is None or (self._recovered and self._chain.last is self._recovered):
            return self._owned.decision
        return self._chain.last

    @property
    def limit_has_grown(self) -> bool:
        """Whether another query may have larger batches than this one."""
        return self.size is not None and self._limit is not None and self.size.limit > self._limit

    def _failed(self, error: JobError) -> QueryFailed:
        error = ownership.complete(error, self._owned)
        healthy_s = (self._batch_started or time.monotonic()) - self._started
        limit_reduced = self.size is not None and self._limit is not None and self.size.limit < self._limit
        error, unread_state = state_unread(error, self.decision, self._unread_state)
        return QueryFailed(
            error,
            healthy_s,
            batch_abandoned=self._batch_abandoned,
            limit_reduced=limit_reduced,
            batch=self._failed_batch,
            unread_state=unread_state,
        )

    def _run_to_its_end(self) -> None:
        lanes = self._owned.lanes
        if self._executors:
            self._executors.begin()
        columns = sink_columns(self._spark, self._read(), self._job, lanes.sink)
        with self._checkpoint(columns) as place:
            query = self._start(place, self._delivery.attach(columns, lanes))
            try:
                self._watch(query)
            finally:
                query.stop()
                self._count_observed(query)
                self._letters.close()

    @contextmanager
    def _checkpoint(self, output: DataFrame) -> Iterator[str]:
        """The directory of Spark's checkpoint."""
        state = self._job.state
        if state is None:
            with checkpoint.throwaway(checkpoint.parent(self._job.checkpoint)) as place:
                yield place
            return
        start = state_start.start_of(
            self._spark,
            self._job,
            self._owned,
            self._progress,
            self._stop,
            settings=state,
            positions=self._positions,
            output=output,
            unread=self._unread_state,
        )
        self._chain, self._recovered = start.chain, start.recovered
        self._progress.watermark(self._chain.last.watermark_ms if self._chain.last else 0)
        yield f"{state.checkpoint}/{self._chain.directory.name}"

    def _start(self, place: str, output: Output) -> StreamingQuery:
        self._metrics = output.metrics
        writer = (
            output.rows.writeStream.foreachBatch(lambda rows, number: self._process(rows, number, output))
            .option("checkpointLocation", place)
            .options(**self._job.stream_options)
            .queryName(self._job.name)
        )
        if self._job.state is not None:
            writer = writer.outputMode(self._job.state.output_mode)
        if self._job.available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._job.trigger_interval_ms} milliseconds").start()

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
            if self.limit_has_grown:
                with self._busy:  # the batch that made it grow ends; a later one does nothing
                    return
            ownership.require_member(self._owned.lanes.sink)
            self._count_observed(query)
            self._scale_while_idle()
            query.awaitTermination(_POLL_S)
        failed = query.exception()
        if failed is not None:
            raise failed

    def _scale_while_idle(self) -> None:
        if self._executors and self._busy.acquire(blocking=False):
            try:
                self._executors.idle()
            finally:
                self._busy.release()

    def _process(self, rows: DataFrame, number: int, output: Output) -> None:
        with self._busy:
            if self._stop.is_set() or self.limit_has_grown:
                return
            self._batch_started = time.monotonic()
            try:
                self._deliver(rows, number, output)
                self._batch_started = None
                return
            except BaseException as e:
                self._failure = e
            raise BatchEnded  # without the error as its context, whose stack holds producers

    def _deliver(self, rows: DataFrame, number: int, output: Output) -> None:
        started = time.monotonic()
        query = self._spark.streams.active[0]  # start() may not have returned yet
        execution = running_execution(rows, query)
        batch_tasks = tasks(execution) if self._chain is None else of_stateful(execution)
        ranges = tuple(r for task in batch_tasks for r in task.ranges)
        ranges_known = time.monotonic()
        self._progress.start.ended(StartPart.QUERY)
        fault_point("batch-start")
        self._check(ranges)
        lanes = self._owned.lanes
        letters = self._letters if self._job.source.dead_letter_fraction is not None else None
        try:
            # Spark runs a query's first batch also when there are no new records. It has no tasks. A batch without
            # records moves the watermark of a stateful query, and is decided.
            batch = Batch(rows, execution, batch_tasks, output.metrics, letters, number, query, self._chain)
            result = self._delivery.deliver(batch, lanes) if ranges or self._chain else BatchResult({})
        except Exception as e:
            error, offsets = cause(e), sum(r.until - r.start for r in ranges)
            # What a batch without records outputs has ended in the state, and fewer offsets do not divide it.
            if self.size and offsets and error.reason is Reason.TRANSACTION_TIMED_OUT:
                self.size = self.size.after_time_out(offsets)
                log.warning("the next batches have at most %d offsets (source.maxOffsetsPerTrigger)", self.size.limit)
            self._abandon(batch_tasks, ranges, error)
            if error.reason is Reason.ROW_REFUSED:
                failed = tuple(r for slot in error.slots for r in batch_tasks[slot].ranges) or ranges
                raise locate(error, failed, lanes.sink, self._rows) from None
            if error.reason is Reason.BATCH_FAILED and ranges:
                raise of_batch(error, ranges) from e
            raise
        fault_point("batch-end")
        self._delivered = number
        self._positions.update(result.positions)
        if self._chain and self._chain.last:
            self._progress.watermark(self._chain.last.watermark_ms)
        self._letters.add(result.read)
        self._progress.count(
            abandoned_records=result.abandoned,
            skipped_lanes=len(result.skipped),
            dead_letters=result.read.letters,
            late_rows=result.late,
        )
        if ranges and self._delivery.counts_expired:
            self._progress.count(expired_records=self._expired(execution, ranges))
        duration_s = time.monotonic() - started
        self._grow(ranges, duration_s)
        self._progress.batch(number, result.positions, result.records, duration_s)
        if self._executors and ranges:
            self._executors.batch_ended(len(batch_tasks), sum(r.until - r.start for r in ranges), duration_s)
        log.debug(
            "batch %d: %d lanes, %s records, %.3f s (%.3f s to find the ranges)",
            number,
            len(ranges),
            "observed" if output.metrics else result.records,
            duration_s,
            ranges_known - started,
        )

    def _abandon(self, batch_tasks: tuple[Task, ...], ranges: tuple[Range, ...], error: JobError) -> None:
        """Abandons a failed batch, as far as the guarantee allows it. Raises JobError."""
        lanes, abandoned = self._owned.lanes, 0
        try:
            abandoned = self._delivery.abandon(batch_tasks, error, lanes)
        finally:
            if self._delivery.moves_first(lanes.sink):
                self._failed_batch = FailedBatch(ranges, lanes.driver, abandoned)
        self._batch_abandoned = abandoned == sum(r.until - r.start for r in ranges)
        self._progress.count(abandoned_records=abandoned)

    def _rows(self, lane: Lane, start: int, until: int) -> pa.Table:
        """The rows of the records [start, until) of a lane, as a task gets them."""
        key = (lane.topic, lane.partition)
        raw = source.read_batch(self._spark, self._job, [lane.topic], {key: start}, {key: until})
        return sink_columns(self._spark, raw, self._job, self._owned.lanes.sink).toArrow()

    def _check(self, ranges: tuple[Range, ...]) -> None:
        added = {r.lane: r.start for r in ranges if r.lane not in self._positions}  # while the query runs
        if added:
            self._positions.update(ownership.add(self._owned, added))
        for r in ranges:
            if self._positions[r.lane] != r.start:
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"Spark reads {r.lane} from {r.start}, but its position is {self._positions[r.lane]}; this driver "
                    "restarts from the positions",
                )
        # Once a second: a newer driver takes longer to start than a batch that follows another takes.
        if ranges and time.monotonic() - self._newest_at > _REREAD_S:
            self._owned.lanes.require_newest(ranges[0].lane)
            self._newest_at = time.monotonic()

    def _grow(self, ranges: tuple[Range, ...], duration_s: float) -> None:
        if self.size:
            offsets = sum(r.until - r.start for r in ranges)
            self.size = self.size.after_batch(offsets, duration_s, self._job.transaction_timeout_ms / 1000)
        if self.limit_has_grown:
            log.info("the next batches have at most %d offsets again", self.size.limit if self.size else 0)

    def _expired(self, execution: Execution, ranges: tuple[Range, ...]) -> int:
        """Offsets of a batch that retention removed before Spark read them.

        Spark passes over them without an error (failOnDataLoss=false), and counts that it did so, not how many or of
        which lane. Where the log begins now is an upper bound: records that expired after they were read count too.
        """
        if not reads_out_of_range(execution):
            return 0
        earliest = Cluster(self._job).topology().earliest
        return sum(max(0, min(earliest.get(r.lane, r.start), r.until) - r.start) for r in ranges)

    def _count_observed(self, query: StreamingQuery) -> None:
        """Adds the counts that Spark observes: malformed records, and records written as far as Output.metrics says."""
        if self._metrics is None and not self._job.source.skip_malformed:
            return
        if self._observed == self._delivered:
            return
        for number, metrics in observed_after(query, self._observed):
            self._observed = number
            self._progress.count(malformed_records=_metric(metrics, source.METRICS, "malformed"))
            self._progress.delivered(_metric(metrics, self._metrics, "records"))


def of_batch(error: JobError, ranges: Sequence[Range]) -> JobError:
    """The error with the offsets of its batch, among which the record is if a record is its cause."""
    some = ", ".join(f"{r.lane}@{r.start} to {r.until - 1}" for r in ranges[:_RANGES_NAMED])
    more = f" and {len(ranges) - _RANGES_NAMED} more partitions" if len(ranges) > _RANGES_NAMED else ""
    return JobError(error.reason, error.message, f"the batch has the offsets {some}{more}")


def sink_columns(spark: SparkSession, raw: DataFrame, job: JobSpec, sink: Sink) -> DataFrame:
    """What the sink writes, from the columns of Spark's Kafka source.

    Raises JobError for a wrong schema or transform.
    """
    keep = None
    if job.source.dead_letter_fraction is not None:
        if job.state is None:
            keep = dead_letters.keep(job)
        else:  # they are read apart (delivery/stateful_letters.py)
            job = replace(job, source=replace(job.source, skip_malformed=True))
    return sink.to_sink_columns(transform.apply_transform(spark, raw, job, keep))


def _metric(metrics: Mapping[str, Mapping[str, Any]], name: str | None, field: str) -> int:
    return int(metrics[name][field]) if name is not None and name in metrics else 0
