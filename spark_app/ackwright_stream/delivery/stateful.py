"""A stateful pipeline: one transaction of the driver has a batch's positions and its decision, which chooses the state.

    1  evaluate        the stream's own plan runs once; each task stores its state under new names and answers with its
                       rows, encoded
    2  state           the ids of what was stored: one for each partition, from the state of the last decision
    3  commit          positions of all lanes and decision; under exactly-once the rows as well
    4  return          Spark writes its log of commits, which is a cache from now on

At-least-once writes the rows between 2 and 3, at-most-once between 3 and 4. A sink that commits rows and decision in
one step, with no more work than in two, does so under each guarantee.

A task does not commit, because tasks that run again evaluate again: output and state would be of different evaluations.
See docs/protocol.md#stateful-pipelines.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import assert_never

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ackwright_stream import decisions
from ackwright_stream.decisions import Decision
from ackwright_stream.delivery.batch import Batch, BatchResult, Output, passing_fault_points
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, StateSettings
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Range, Task
from ackwright_stream.sinks.base import OutputWriter, Rows, Sink
from ackwright_stream.spark_internals.arrow import spark_schema
from ackwright_stream.spark_internals.state import evaluated
from ackwright_stream.state_log import StateDirectory
from ackwright_stream.task_input import require_complete_input
from ackwright_stream.worker_state import STATE

log = logging.getLogger(__name__)
_ANSWER = pa.schema([("task", pa.int32()), ("records", pa.int64()), ("bytes", pa.int64()), ("rows", pa.binary())])


class Stateful:
    """Evaluates once, then commits."""

    counts_expired = False  # the state counts every record, whatever becomes of the output
    transactional = False  # the rows go through the driver's transaction, not through those of tasks

    def __init__(self, job: JobSpec, settings: StateSettings) -> None:
        self._job, self._settings = job, settings
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
        encode = partial(_in_worker, self._settings.batch_bytes)
        return Output(lanes.sink.worker_columns(output).mapInArrow(encode, spark_schema(_ANSWER)))

    def deliver(self, batch: Batch, lanes: Lanes) -> BatchResult:
        chain, number, query = batch.chain, batch.number, batch.query
        if chain is None or query is None:
            raise JobError(Reason.UNEXPECTED, "a stateful batch has no decision before it; report this")
        answers = self._evaluate(batch)
        fault_point("evaluated")
        result = evaluated(query, batch.execution)
        state = decisions.state_of(result.entries, result.operators, number, self._settings.partitions, chain.last)
        starts = dict(chain.positions)
        targets = starts | {r.lane: r.until for r in batch.ranges}
        text = decisions.require_same_offsets(number, chain.directory.offsets(number), targets)
        encoded = [row for row in answers.column("rows").to_pylist() if row]
        decision = Decision(
            batch=number,
            driver=lanes.driver,
            directory=chain.directory.name,
            query=chain.query,
            starts=starts,
            positions=targets,
            watermark_ms=result.watermark_ms,
            state=state,
            records=sum(answers.column("records").to_pylist()),
            digest=decisions.digest(encoded),
            offsets_before=chain.last.offsets if chain.last else None,
            offsets=text,
            accepted_loss=chain.accepted_loss,
        )
        rows = passing_fault_points(_decoded(encoded), starts)
        records = self._commit(lanes, decision, rows, batch.ranges, chain.directory)
        chain.last = decision
        return BatchResult(targets, records, late=result.late_rows)

    def _commit(
        self, lanes: Lanes, decision: Decision, rows: Rows, ranges: tuple[Range, ...], directory: StateDirectory
    ) -> int:
        """Writes the rows and decides the batch, in the guarantee's order; returns the number of rows."""
        decide = partial(
            lanes.decide_batch, decision.starts, decision.positions, batch=decision.batch, decision=decision.to_json()
        )
        writer = _writer(lanes.sink)
        if writer is None:
            return decide(rows=rows)
        match self._job.guarantee:
            case Guarantee.EXACTLY_ONCE:
                return decide(rows=rows)
            case Guarantee.AT_LEAST_ONCE:
                # A failure before the decision leaves rows behind, and the batch is evaluated again.
                def write() -> int:
                    directory.record_written(decision.batch, decision.offsets)
                    return _write(writer, rows, acknowledged=True)

                return decide(rows=(), before=write)
            case Guarantee.AT_MOST_ONCE:
                # If the outcome of this commit is unknown, it raises: the rows of this evaluation are not written.
                decide(rows=())
                self._unwritten = ranges
                records = _write(writer, rows, acknowledged=False)
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

    def _evaluate(self, batch: Batch) -> pa.Table:
        """The answers of all tasks, by their numbers; the one action on the batch's rows."""
        answers: pa.Table = batch.rows.toArrow().sort_by("task")
        size, limit = sum(answers.column("bytes").to_pylist()), self._settings.batch_bytes
        if size > limit:
            raise JobError(
                Reason.BATCH_FAILED,
                f"batch {batch.number} has {size} bytes of output, more than the {limit} that the driver may have in "
                "memory; lower source.maxOffsetsPerTrigger, or let the transform return less",
            )
        if answers.num_rows != self._settings.partitions:
            raise JobError(
                Reason.UNEXPECTED,
                f"{answers.num_rows} tasks of a batch answered in place of {self._settings.partitions}; report this",
            )
        return answers


def _writer(sink: Sink) -> OutputWriter | None:
    """What writes the output outside of the commit of the decision; None: nothing does."""
    return sink.decisions.writer if sink.decisions else None


def _write(writer: OutputWriter, rows: Rows, *, acknowledged: bool) -> int:
    records = writer.write(rows, acknowledged=acknowledged)
    fault_point("written")
    return records


def _decoded(encoded: list[bytes]) -> Iterator[pa.RecordBatch]:
    for part in encoded:
        with pa.ipc.open_stream(part) as reader:
            yield from reader


def _in_worker(limit: int, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One task: its rows as the bytes of an Arrow stream; only their size if it has more than `limit` bytes."""
    context = TaskContext.get()
    number = context.partitionId() if context else 0
    records, size, encoded = _encoded(require_complete_input(rows, STATE.input), limit)
    fault_point("stored")
    answer = {"task": number, "records": records, "bytes": size, "rows": encoded}
    yield pa.RecordBatch.from_pylist([answer], schema=_ANSWER)


def _encoded(rows: Rows, limit: int) -> tuple[int, int, bytes | None]:
    """The number of the rows, their bytes, and the rows; None if there are no rows, or too many bytes."""
    sink = pa.BufferOutputStream()
    writer: pa.ipc.RecordBatchStreamWriter | None = None
    records = size = 0
    for batch in rows:
        records, size = records + batch.num_rows, size + batch.nbytes
        if size > limit or not batch.num_rows:
            continue  # Spark reads a task's input to its end
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is None:
        return records, size, None
    writer.close()
    return records, size, None if size > limit else sink.getvalue().to_pybytes()
