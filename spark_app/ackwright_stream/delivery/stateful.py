"""A stateful pipeline: one transaction of the driver has a batch's positions and its decision, which chooses the state.

    1  evaluate        the stream's own plan runs once; each task stores its state under new names and answers with its
                       rows, encoded, or stores them in files beside the state and answers with their names
    2  dead letters    of the malformed records that the plan has left out, if there are any (stateful_letters.py)
    3  state           the ids of what was stored: one for each partition, from the state of the last decision
    4  commit          positions of all lanes and decision; under exactly-once rows and dead letters as well
    5  return          Spark writes its log of commits, which is a cache from now on

At-least-once writes rows and dead letters between 3 and 4, at-most-once between 4 and 5. A sink that commits rows and
decision in one step, with no more work than in two, does so under each guarantee.

A task does not commit, because tasks that run again evaluate again: output and state would be of different evaluations.
See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import assert_never

import pyarrow as pa
from pyspark.sql import DataFrame

from ackwright_stream import decisions, encoded_output
from ackwright_stream.decisions import Decision
from ackwright_stream.delivery import stateful_letters
from ackwright_stream.delivery.batch import Batch, BatchResult, Output, passing_fault_points
from ackwright_stream.delivery.stateful_letters import BatchLetters
from ackwright_stream.delivery.task_pieces import ANSWER, answers, gather
from ackwright_stream.encoded_output import Piece, files_of
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, StateSettings
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Range, Task
from ackwright_stream.row_hashes import with_hashes
from ackwright_stream.sinks.base import OutputWriter, Rows, Sink
from ackwright_stream.spark_internals.arrow import map_in_arrow
from ackwright_stream.spark_internals.state import evaluated
from ackwright_stream.state_log import StateDirectory

log = logging.getLogger(__name__)


class Stateful:
    """Evaluates once, then commits."""

    counts_expired = False  # the state counts every record, whatever becomes of the output
    transactional = False  # the rows go through the driver's transaction, not through those of tasks

    def __init__(self, job: JobSpec, settings: StateSettings) -> None:
        self._job, self._settings = job, settings
        self._is_first = True  # whether the next batch is the first one
        self._unwritten: tuple[Range, ...] = ()  # of a batch that is decided, while its output is not written

    def uses_workers(self, sink: Sink) -> bool:
        return True

    def moves_first(self, sink: Sink) -> bool:
        """Not if one commit has positions and output."""
        return self._job.guarantee is Guarantee.AT_MOST_ONCE and _writer(sink) is not None

    def batch_limit(self, lanes: int) -> int | None:
        """The user's limit, or that of one transaction."""
        declared = self._job.source.max_offsets_per_trigger
        return self._job.source.offsets_per_transaction if declared is None else declared

    def survives(self, error: JobError) -> bool:
        return False

    def attach(self, output: DataFrame, lanes: Lanes) -> Output:
        answer = partial(_in_worker, self._settings, lanes.driver)
        return Output(map_in_arrow(with_hashes(lanes.sink.worker_columns(output)), answer, ANSWER))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        with self._evaluated(batch, lanes, again=False) as (pieces, letters):
            return self._decide(batch, lanes, pieces, letters)

    def rerun(self, batch: Batch, lanes: Lanes, decision: Decision) -> Decision:
        """Evaluates a batch that was decided once more, without its output; returns the decision of this evaluation.

        Raises JobError, as deliver() does.
        """
        chain, number, query = batch.chain, batch.number, batch.query
        if chain is None or query is None:
            raise JobError(Reason.UNEXPECTED, "a batch that runs again has no decision before it; report this")
        with self._evaluated(batch, lanes, again=True) as (pieces, _):
            result = evaluated(query, batch.execution)
            state = decisions.state_of(result.entries, result.operators, number, self._settings.partitions, chain.last)
            decisions.require_same_offsets(number, chain.directory.offsets(number), decision.positions)
            records = sum(piece.records for piece in pieces)
            return replace(decision, state=state, records=records, digest=encoded_output.digest(pieces))

    @contextmanager
    def _evaluated(self, batch: Batch, lanes: Lanes, *, again: bool) -> Iterator[tuple[Sequence[Piece], BatchLetters]]:
        """The output of all tasks, and the dead letters, which one more evaluation does not need. Their files are
        removed in the end."""
        if self._is_first:
            encoded_output.clear(self._settings, lanes.driver)  # of drivers that ended amid a batch
        self._is_first, may_be_in_files = False, True
        try:
            pieces, letters = self._evaluate(batch), BatchLetters()
            if not again:
                letters = stateful_letters.of_batch(self._job, self._settings, batch, lanes.driver)
            may_be_in_files = any(piece.file for piece in (*pieces, *letters.pieces))
            yield pieces, letters
        finally:
            if may_be_in_files:
                encoded_output.clear(self._settings, lanes.driver)

    def _decide(self, batch: Batch, lanes: Lanes, pieces: Sequence[Piece], letters: BatchLetters) -> BatchResult:
        """Decides the batch with the output of its evaluation, and with its dead letters."""
        chain, number, query = batch.chain, batch.number, batch.query
        if chain is None or query is None:
            raise JobError(Reason.UNEXPECTED, "a stateful batch has no decision before it; report this")
        fault_point("evaluated")
        result = evaluated(query, batch.execution)
        state = decisions.state_of(result.entries, result.operators, number, self._settings.partitions, chain.last)
        starts = dict(chain.positions)
        targets = starts | {r.lane: r.until for r in batch.ranges}
        text = decisions.require_same_offsets(number, chain.directory.offsets(number), targets)
        decision = Decision(
            batch=number,
            driver=lanes.driver,
            directory=chain.directory.name,
            query=chain.query,
            starts=starts,
            positions=targets,
            watermark_ms=result.watermark_ms,
            state=state,
            records=sum(piece.records for piece in pieces),
            digest=encoded_output.digest(pieces),
            offsets_before=chain.last.offsets if chain.last else None,
            offsets=text,
            accepted_loss=chain.accepted_loss,
        )
        rows = passing_fault_points(encoded_output.decode(pieces, partial(files_of, self._settings)), starts)
        malformed = letters.rows(self._settings)
        records = self._commit(lanes, decision, rows, batch.ranges, chain.directory, letters=malformed)
        chain.last = decision
        return BatchResult(targets, records, late=result.late_rows, read=letters.counts)

    def _commit(
        self,
        lanes: Lanes,
        decision: Decision,
        rows: Rows,
        ranges: tuple[Range, ...],
        directory: StateDirectory,
        *,
        letters: Rows = (),
    ) -> int:
        """Writes rows and dead letters and decides the batch, in the guarantee's order; returns the number of rows."""
        decide = partial(
            lanes.decide_batch, decision.starts, decision.positions, batch=decision.batch, decision=decision.to_json()
        )
        writer = _writer(lanes.sink)
        if writer is None:
            return decide(rows=rows, letters=letters)
        match self._job.guarantee:
            case Guarantee.EXACTLY_ONCE:
                return decide(rows=rows, letters=letters)
            case Guarantee.AT_LEAST_ONCE:
                # A failure before the decision leaves rows behind, and the batch is evaluated again.
                def write() -> int:
                    directory.record_written(decision.batch, decision.offsets)
                    return _write(writer, rows, letters, acknowledged=True)

                return decide(rows=(), before=write)
            case Guarantee.AT_MOST_ONCE:
                # If the outcome of this commit is unknown, it raises: the rows of this evaluation are not written.
                decide(rows=())
                self._unwritten = ranges
                records = _write(writer, rows, letters, acknowledged=False)
                self._unwritten = ()
                return records
            case _:
                assert_never(self._job.guarantee)

    def abandon(self, tasks: tuple[Task, ...], error: JobError, lanes: Lanes) -> int:
        """The records whose output is lost: of a batch that was decided and then not written.

        What was not decided is evaluated again. A batch that cannot be evaluated halts the pipeline under each
        guarantee: without its records the state would be wrong.
        """
        lost = sum(r.until - r.start for r in self._unwritten)
        if self._unwritten:
            log.warning("the output of a batch that is decided was not written, and is lost: %s", error.message)
        self._unwritten = ()
        return lost

    def _evaluate(self, batch: Batch) -> list[Piece]:
        """The output of all tasks, in the order of their numbers; the one action on the batch's rows."""
        pieces, tasks = gather(batch.rows)
        if tasks != self._settings.partitions:
            raise JobError(
                Reason.UNEXPECTED,
                f"{tasks} tasks of a batch answered in place of {self._settings.partitions}; report this",
            )
        return pieces


def _writer(sink: Sink) -> OutputWriter | None:
    """What writes the output outside of the commit of the decision; None: nothing does."""
    return sink.decisions.writer if sink.decisions else None


def _write(writer: OutputWriter, rows: Rows, letters: Rows, *, acknowledged: bool) -> int:
    records = writer.write(rows, letters, acknowledged=acknowledged)
    fault_point("written")
    return records


def _in_worker(settings: StateSettings, driver: int, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: its rows, or the names of files that have them if they are more than its part of the memory."""
    yield from answers(settings, driver, settings.partitions, rows, hashed=True)
    fault_point("stored")
