"""One Spark query, from the positions that the driver owns to its end: drained, complete (a bounded run), or failed."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream import checkpoint, ownership, row_counts, source, transform
from ackwright_stream.delivery import exactly_once
from ackwright_stream.delivery.at_least_once import AtLeastOnce
from ackwright_stream.delivery.at_most_once import AtMostOnce
from ackwright_stream.delivery.batch import Batch, BatchResult, Delivery
from ackwright_stream.delivery.exactly_once import ExactlyOnce
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.lanes import Range
from ackwright_stream.ownership import Ownership
from ackwright_stream.points import reach
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress
from ackwright_stream.ranges import task_ranges
from ackwright_stream.reasons import REASONS
from ackwright_stream.reports import State
from ackwright_stream.sinks import kafka_columns
from ackwright_stream.spark_internals.execution import Execution, running_execution

_POLL_S = 0.25
_SINK_METRICS = "ackwright_sink"
log = logging.getLogger(__name__)


def delivery(job: JobSpec, owned: Ownership) -> Delivery:
    """The code of the declared guarantee."""
    match job.guarantee:
        case Guarantee.EXACTLY_ONCE:
            return ExactlyOnce(job, owned.driver, owned.topic_ids)
        case Guarantee.AT_LEAST_ONCE:
            return AtLeastOnce(job, owned.driver, owned.topic_ids, owned.owner)
        case Guarantee.AT_MOST_ONCE:
            return AtMostOnce(job, owned.driver, owned.topic_ids, owned.lanes)


class Query:
    """Runs once. Spark's checkpoint is a fresh directory that is thrown away: the positions alone say where to go on. headers: whether the
    records' headers are read, see transform.needs_headers. limit: offsets a batch; None: no limit."""

    def __init__(
        self,
        spark: SparkSession,
        job: JobSpec,
        owned: Ownership,
        progress: Progress,
        stop: threading.Event,
        *,
        headers: bool = True,
        limit: int | None = None,
    ) -> None:
        self._headers, self._limit = headers, limit
        self._spark, self._job, self._owned, self._progress, self._stop = spark, job, owned, progress, stop
        self._delivery = delivery(job, owned)
        self._at: dict[Lane, int] = dict(owned.positions)
        self._moved_at = dict.fromkeys(self._at, time.monotonic())
        self._busy = threading.Lock()  # held by a batch and by heartbeats: a heartbeat would fence the lane's task
        self._failure: BaseException | None = None
        self._began = time.monotonic()
        self._batch_began: float | None = None  # of the one that is under way, or failed
        self.gave_up = False  # all of the batch that failed: the next one is another
        self.next_limit: int | None = None  # of the query after this one, if a batch failed for its size
        self._observed = -1
        self._observes_rows = False

    def run(self) -> None:
        """Returns when the query was drained (stop is set) or, for a bounded run, complete. Raises JobError."""
        with checkpoint.throwaway(checkpoint.parent(self._job.checkpoint)) as place:
            try:
                query = self._start(place)
                try:
                    self._watch(query)
                finally:
                    query.stop()
                    self._observe(query)
            except StreamingQueryException as e:
                raise cause(self._failure or e) from e
        if self._failure is not None:
            raise cause(self._failure) from self._failure
        if not self._stop.is_set() and not self._job.available_now:
            raise JobError(Reason.UNEXPECTED, "the stream ended although it is unbounded")

    @property
    def healthy_s(self) -> float:
        """For how long it has run without a failure: up to the batch that is under way, or failed, for that may take minutes to do so."""
        return (self._batch_began or time.monotonic()) - self._began

    def _start(self, place: str) -> StreamingQuery:
        starting: dict[str, dict[str, int]] = {}
        for lane, offset in self._at.items():
            starting.setdefault(lane.topic, {})[str(lane.partition)] = offset
        raw = source.read_stream(self._spark, self._job, json.dumps(starting), headers=self._headers, limit=self._limit)
        out = self._delivery.planned(
            kafka_columns.to_sink_columns(transform.apply_transform(self._spark, raw, self._job), self._job.sink)
        )
        if self._job.guarantee is Guarantee.AT_LEAST_ONCE:
            self._observes_rows = not row_counts.counted_by_spark(out)
            if self._observes_rows:
                out = out.observe(_SINK_METRICS, F.count(F.lit(1)).alias("records"))
        writer = (
            out.writeStream.foreachBatch(self._process).option("checkpointLocation", place).queryName(self._job.name)
        )
        if self._job.available_now:
            return writer.trigger(availableNow=True).start()
        return (
            writer.options(**checkpoint.RARELY_LOGGED)
            .trigger(processingTime=f"{self._job.trigger_interval_ms} milliseconds")
            .start()
        )

    def _watch(self, query: StreamingQuery) -> None:
        while query.isActive:
            if self._stop.is_set():
                self._progress.state(State.DRAINING)
                with self._busy:  # the running batch ends; a later one finds stop set and does nothing
                    return
            self._heartbeat()
            self._observe(query)
            query.awaitTermination(_POLL_S)
        failed = query.exception()
        if failed is not None:
            raise failed

    def _process(self, rows: DataFrame, number: int) -> None:
        with self._busy:
            if self._stop.is_set():
                return
            self._batch_began = time.monotonic()
            try:
                self._deliver(rows, number)
                self._batch_began = None
            except BaseException as e:
                self._failure = e
                raise

    def _deliver(self, rows: DataFrame, number: int) -> None:
        began = time.monotonic()
        plan = running_execution(rows, self._spark.streams.active[0])  # start() may not have returned yet
        ranges = task_ranges(plan)
        planned = time.monotonic() - began
        self._check(ranges)
        reach("batch-start")
        try:
            # Spark has a query's first batch also when nothing is new. It has no tasks.
            result = self._delivery.deliver(Batch(rows, plan, ranges)) if ranges else BatchResult({})
        except Exception as e:
            self.next_limit = exactly_once.smaller(self._job, ranges, time.monotonic() - began)
            if _is_the_batch(cause(e)):
                given_up = self._delivery.abandon(ranges)
                self.gave_up = given_up == sum(r.until - r.start for r in ranges)
                self._progress.count(abandoned_records=given_up)
            raise
        reach("batch-end")
        self._at.update(result.positions)
        self._moved_at.update(dict.fromkeys(result.positions, time.monotonic()))
        self._progress.count(abandoned_records=result.abandoned, skipped_lanes=len(result.skipped))
        took = time.monotonic() - began
        records = self._written(plan) if result.records is None else result.records
        self._progress.batch(number, result.positions, records or 0, took)
        log.debug(
            "batch %d: %d lanes, %s records, %.3f s (%.3f s to find the ranges)",
            number,
            len(ranges),
            records,
            took,
            planned,
        )

    def _written(self, plan: Execution) -> int | None:
        """How many rows Spark's own sink wrote in this batch; None: that is observed, or not known."""
        if self._observes_rows:
            return None
        records = row_counts.rows_written(plan)
        if records is None:
            log.warning(
                "Spark does not tell how many records this batch had: they are missing in the number of records"
            )
        return records

    def _check(self, ranges: tuple[Range, ...]) -> None:
        for r in ranges:
            if r.lane not in self._at:  # a partition added while running
                self._at[r.lane] = ownership.add(self._job, self._owned, r.lane, r.start)
            if self._at[r.lane] != r.start:
                raise JobError(
                    Reason.POSITION_CONFLICT,
                    f"Spark reads {r.lane} from {r.start}, but its position is {self._at[r.lane]}; starting again from the positions",
                )

    def _observe(self, query: StreamingQuery) -> None:
        """Takes the counts that Spark makes on the way of the rows: malformed records, and what its own sink wrote where no plan tells."""
        if not self._observes_rows and not self._job.source.skip_malformed:
            return
        for progress in query.recentProgress:
            if progress["batchId"] > self._observed:
                self._observed = progress["batchId"]
                metrics = progress["observedMetrics"]
                self._progress.count(malformed_records=_metric(metrics, source.METRICS, "malformed"))
                self._progress.delivered(_metric(metrics, _SINK_METRICS, "records"))

    def _heartbeat(self) -> None:
        """Commits the positions of idle lanes again, or they would expire; each in its own fenced transaction. (rule 5)"""
        due = time.monotonic() - self._job.heartbeat_interval_ms / 1000
        idle = [lane for lane, moved in self._moved_at.items() if moved < due]
        if not idle or not self._busy.acquire(blocking=False):
            return
        try:
            for lane in idle:
                if self._stop.is_set():
                    return
                producer, found = self._owned.lanes.fence(lane)
                if found is None or found.offset != self._at[lane]:
                    self._owned.lanes.release(producer, lane)
                    raise JobError(
                        Reason.POSITION_LOST if found is None else Reason.POSITION_CONFLICT,
                        f"idle lane {lane} is at {found}",
                    )
                self._owned.lanes.commit(producer, lane, found.offset)
                self._moved_at[lane] = time.monotonic()
        finally:
            self._busy.release()


def _metric(metrics: Any, name: str, field: str) -> int:
    return int(metrics[name][field]) if metrics and name in metrics else 0


def _is_the_batch(error: JobError) -> bool:
    """Whether the batch itself is at fault, so that at-most-once gives it up instead of failing at it for ever."""
    return REASONS[error.reason].blames_batch
