"""Runs decided batches again from an older copy of the state, without their output, up to the last one.

A batch has the records and the watermark of its decision, and runs in a separate query, because Spark chooses the
records of each further batch of a query itself. Its output is compared with the digest in the decision. If they differ,
the new state does not belong to what was delivered, and the driver halts. See docs/stateful.md#if-the-state-is-lost.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ackwright_stream import ownership, state_replay
from ackwright_stream.cluster import Cluster
from ackwright_stream.decisions import Decision, state_lost
from ackwright_stream.delivery.batch import Batch
from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.errors import JobError
from ackwright_stream.failures import BatchEnded, cause
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import JobSpec, Reason, StateSettings
from ackwright_stream.ownership import Ownership
from ackwright_stream.progress import Progress
from ackwright_stream.ranges import of_stateful
from ackwright_stream.reports import State
from ackwright_stream.spark_internals.execution import running_execution
from ackwright_stream.spark_internals.state import closing_stores
from ackwright_stream.state_log import Files, StateChain, StateDirectory

_POLL_S = 0.25
_LOG_EVERY_S = 30.0
log = logging.getLogger(__name__)


class ReplayStopped(Exception):
    """The driver is to end, before all batches have run again."""


class Replay:
    """The replay of one query's batches."""

    def __init__(
        self,
        spark: SparkSession,
        job: JobSpec,
        owned: Ownership,
        progress: Progress,
        stop: threading.Event,
        *,
        settings: StateSettings,
        files: Files,
        columns: DataFrame,  # as query.sink_columns() returned them
    ) -> None:
        self._spark, self._job, self._settings = spark, job, settings
        self._owned, self._progress, self._stop, self._files = owned, progress, stop, files
        self._stateful, self._columns = Stateful(job, settings), columns

    def recover(self, last: Decision, lost: JobError, *, is_processor: bool) -> Decision:
        """The last decision, with state that is there.

        lost: the error for the state that it names. Raises JobError: STATE_LOST if no such state can be computed, and
        what a batch fails with. Raises ReplayStopped.
        """
        decisions = self._owned.lanes.sink.decisions
        plan = state_replay.plan(
            self._files,
            last,
            decisions.earlier() if decisions else (),
            Cluster(self._job).topology().earliest,
            lost,
            is_processor=is_processor,
        )
        base, started = plan.base, time.monotonic()
        if plan.decisions:
            log.warning(
                "%s; %d batches run again without their output, from the state behind batch %d",
                lost.cause,
                len(plan.decisions),
                base.batch,
            )
        logged = started
        with closing_stores(self._spark) as close_stores:
            for text in plan.decisions:
                decision = Decision.of_json(text)
                self._progress.replays(decision.batch, last.batch)
                base = self._run_again(base, decision, lost)
                close_stores()
                state_replay.record(self._files, decision, base.state)
                fault_point("replayed")
                if time.monotonic() - logged > _LOG_EVERY_S:
                    logged = time.monotonic()
                    log.info("batch %d of %d has run again", base.batch, last.batch)
        if plan.decisions:
            log.warning("the state behind batch %d was restored after %.1f s", base.batch, time.monotonic() - started)
        self._progress.state(State.RUNNING)
        return base

    def _run_again(self, base: Decision, decision: Decision, lost: JobError) -> Decision:
        """The decision with the state of one more evaluation, from the state of the batch before."""
        state_replay.prepare(self._files, self._settings.checkpoint, base, decision)
        results: list[Decision] = []
        failures: list[BaseException] = []

        def process(rows: DataFrame, _: int) -> None:
            try:
                results.append(self._evaluate(rows, base, decision))
                return
            except BaseException as e:
                failures.append(e)
            raise BatchEnded

        writer = (
            self._stateful.attach(self._columns, self._owned.lanes)
            .rows.writeStream.foreachBatch(process)
            .option("checkpointLocation", f"{self._settings.checkpoint}/{base.directory}")
            .options(**self._job.stream_options)
            .queryName(self._job.name)
            .outputMode(self._settings.output_mode)
            .trigger(once=True)
        )
        try:
            query = writer.start()
            try:
                self._watch(query)
            finally:
                query.stop()
        except StreamingQueryException as e:
            # Behind a batch that its log had before the query began, Spark ends the query (SPARK-55271). The state of
            # the batch is stored by then.
            if not results:
                raise _failed(cause(failures[0] if failures else e), base, decision, lost) from e
        if len(results) != 1:
            raise JobError(Reason.UNEXPECTED, f"Spark did not run batch {decision.batch} again; report this")
        again = results[0]
        if (again.records, again.digest) != (decision.records, decision.digest):
            raise _differs(again, base, decision, lost)
        return replace(decision, state=again.state)

    def _evaluate(self, rows: DataFrame, base: Decision, decision: Decision) -> Decision:
        query = self._spark.streams.active[0]  # start() may not have returned yet
        execution = running_execution(rows, query)
        tasks = of_stateful(execution)
        ranges = {r.lane: (r.start, r.until) for task in tasks for r in task.ranges if r.start != r.until}
        decided = {lane: (start, decision.positions[lane]) for lane, start in decision.starts.items()}
        if ranges != {lane: ends for lane, ends in decided.items() if ends[0] != ends[1]}:
            raise JobError(
                Reason.UNEXPECTED,
                f"Spark reads other offsets for batch {decision.batch} than its decision has; report this",
            )
        directory = StateDirectory(self._files, base.directory)
        chain = StateChain(directory, base.query, base, base.accepted_loss, decision.starts)
        batch = Batch(rows, execution, tasks, number=decision.batch, query=query, chain=chain)
        return self._stateful.rerun(batch, self._owned.lanes, decision)

    def _watch(self, query: StreamingQuery) -> None:
        while not query.awaitTermination(_POLL_S):
            if self._stop.is_set():
                raise ReplayStopped
            ownership.require_member(self._owned.lanes.sink)


def _failed(error: JobError, base: Decision, decision: Decision, lost: JobError) -> JobError:
    """The error with which a batch that runs again has ended."""
    problem = f"batch {decision.batch} cannot run again from the state behind batch {base.batch}: {error.cause}"
    if error.reason is Reason.DATA_EXPIRED:
        return state_lost(f"{lost.cause}, and {problem}", lost.fingerprint)
    if error.reason is Reason.STATE_LOST:  # without a fingerprint: Spark could not load the state, and tries once more
        return JobError(Reason.STATE_LOST, problem, error.explanation)
    return error


def _differs(again: Decision, base: Decision, decision: Decision, lost: JobError) -> JobError:
    output = (
        f"{again.records} rows in place of {decision.records}"
        if again.records != decision.records
        else f"other values in its {decision.records} rows"
    )
    return state_lost(
        f"{lost.cause}, and batch {decision.batch}, which ran again from the state behind batch {base.batch}, has "
        f"{output}: the transform is not deterministic, so its state cannot be computed again",
        lost.fingerprint,
    )
