"""Dead letters of a stateful batch: its malformed records, which a separate read of the same offsets returns.

    1  evaluate        the stream's own plan leaves malformed records out, and Spark counts them
    2  read            if there are any, the batch's ranges are read once more, for the malformed records alone
    3  compare         as many as Spark has counted
    4  commit          with the decision: in its transaction, or as the guarantee and the sink order output and decision

The stream's plan runs once, so nothing else can be computed from it. But whether a record is malformed depends on the
record alone, unless a schema of the registry appears or goes between both reads. Step 3 detects that: the batch then
fails, and is evaluated again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from ackwright_stream import source
from ackwright_stream.dead_letters import described
from ackwright_stream.delivery import dead_letters
from ackwright_stream.delivery.batch import Batch
from ackwright_stream.delivery.dead_letters import Counts
from ackwright_stream.delivery.task_pieces import ANSWER, answers, gather
from ackwright_stream.encoded_output import Piece, decode, files_of
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason, StateSettings
from ackwright_stream.positions import Range
from ackwright_stream.sinks.base import Rows


@dataclass(frozen=True)
class BatchLetters:
    """The dead letters of a batch."""

    counts: Counts = field(default_factory=Counts)
    pieces: Sequence[Piece] = ()

    def rows(self, settings: StateSettings) -> Rows:
        """The dead letters, with dead_letters.COLUMNS. Raises JobError if a file of them is lost."""
        return decode(self.pieces, partial(files_of, settings))


def of_batch(job: JobSpec, settings: StateSettings, batch: Batch, driver: int) -> BatchLetters:
    """Steps 2 and 3, once the batch was evaluated. driver: its number.

    Raises JobError: TOO_MANY_DEAD_LETTERS; BATCH_FAILED if the two reads differ.
    """
    limit = job.source.dead_letter_fraction
    if limit is None or batch.letters is None or not batch.ranges:
        return BatchLetters()
    counts, recent = dead_letters.observed(batch.execution), batch.letters.counts
    if counts.records and not counts.letters:
        return BatchLetters(counts)
    frame = _malformed(batch.rows.sparkSession, job, batch.ranges)
    if dead_letters.are_too_many(counts, recent, limit):
        dead_letters.require_few(counts, recent, limit, described(frame.limit(1).toArrow()))
    tasks = len(batch.ranges)
    # Without hashes: a batch that runs again is compared by its output alone.
    pieces = gather(frame.mapInArrow(partial(answers, settings, driver, tasks), ANSWER)).pieces
    letters = sum(piece.records for piece in pieces)
    if letters != counts.letters:
        raise JobError(
            Reason.BATCH_FAILED,
            f"the state has left out {counts.letters} malformed records of the batch, and a second read has {letters}; "
            "nothing of it is committed, and it is evaluated again",
        )
    return BatchLetters(counts, pieces)


def _malformed(spark: SparkSession, job: JobSpec, ranges: Sequence[Range]) -> DataFrame:
    """The malformed records of these ranges as dead letters."""
    starts = {(r.lane.topic, r.lane.partition): r.start for r in ranges}
    ends = {(r.lane.topic, r.lane.partition): r.until for r in ranges}
    raw = source.read_batch(spark, job, {topic for topic, _ in ends}, starts, ends)
    return source.dead_letters(raw, job.source, job.schema_registry)
