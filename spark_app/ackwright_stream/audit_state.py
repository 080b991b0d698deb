"""What the audit computes again of a stateful pipeline: the output of its state, from the batches that were decided.

The transform runs once, as a batch, over the records that counted: those that were not late when their batch was
evaluated, and in append mode only those of windows that have ended. What was late follows from the recorded ranges and
watermarks. The result is compared

    append             with all records of the sink
    update             with the last record of each key; in a topic the number of all records is that of the decisions
    dropDuplicates     with all records; if another record of the same key may have been chosen, with the candidates
    join               with all records: Spark neither stores a late record nor joins it with stored ones; of an outer
                       join with the rows without a match of which the watermark has passed the end of their range

The code that evaluates batches, and the one that decides them, is not used here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ackwright_stream import audit_apart, audit_groups, transform
from ackwright_stream.audit_apart import Leeway
from ackwright_stream.audit_decisions import History
from ackwright_stream.audit_kafka import Lane
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import DecidingReader, Output, SinkReader
from ackwright_stream.column_names import named
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.spark_internals import outer_joins
from ackwright_stream.spark_internals.state_steps import (
    PROCESSOR,
    StateKey,
    StateStep,
    state_steps,
    window_size,
    without_deduplication,
)

_TRIES = 20  # to read the sink between two batches
_PAUSE_S = 0.3
_MS = 1_000  # microseconds
_COUNT = "__ackwright_count"  # no column of an output has such a name
_OUTPUT = (("the output", 0),)  # in place of source partitions: a record of the output is of no single one


@dataclass(frozen=True)
class Moment:
    """A moment between two batches, at which the content of the sink is fixed."""

    history: History
    positions: Mapping[Lane, int]
    doubts: tuple[Doubt, ...]
    notes: tuple[str, ...]


def fix_moment(
    job: JobSpec, sink: DecidingReader, empty: Output, lanes: Collection[Lane], leeway: Leeway
) -> Moment | None:
    """Fixes the sink's content between two batches; None if no batch was decided yet.

    empty: the output of no records. With leeway a moment is preferred before and after which nothing is decided for a
    while: output behind the last decision is then written, and output before the next one is not. Raises JobError:
    STATE_LOST if positions and last decision are not of the same batch, UNEXPECTED if batches are decided faster than
    they are read.
    """
    starts = sink.lane_starts()
    for attempt in range(_TRIES):
        pause = 0 if leeway.is_none or attempt >= _TRIES / 2 else _PAUSE_S
        before = sink.decisions()
        positions = sink.positions(lanes)
        time.sleep(pause)
        doubts, notes = sink.fix_content(empty, starts)
        time.sleep(pause)
        if sink.decisions() == before:
            history = History.of_texts(before)
            if history is None:
                return None
            _require_same(history, positions)
            return Moment(history, history.last.end, tuple(doubts), tuple(notes))
        time.sleep(_PAUSE_S)
    raise JobError(
        Reason.UNEXPECTED,
        f"the pipeline {job.name} has decided a batch during each of {_TRIES} reads of its output; lengthen "
        "trigger.interval, or suspend it for the audit",
    )


def _require_same(history: History, positions: Mapping[Lane, int | None]) -> None:
    for (topic, partition), offset in history.last.end.items():
        if positions.get((topic, partition)) != offset:
            raise JobError(
                Reason.STATE_LOST,
                f"the position of {topic}-{partition} is {positions.get((topic, partition))}, and the last decision, "
                f"of batch {history.last.number}, has {offset}: one of them was moved or lost; restore the positions",
            )


@dataclass(frozen=True)
class Shape:
    """How a transform keeps its state."""

    step: StateStep | None
    timed: StateKey | None  # the key that the watermark ends; None: state stays forever
    unjudged: str | None  # why its output cannot be computed again; None: it can
    row_ends: tuple[outer_joins.RowEnd, ...] = ()  # of a join: when it writes rows without a match
    # Of an output that only the stream can compute: the type of its rows.
    of_stream_alone: StructType | None = None

    @property
    def aggregates(self) -> bool:
        return self.step is not None and self.step.kind == "Aggregate"

    @property
    def joins(self) -> bool:
        return self.step is not None and self.step.kind == "Join"

    @property
    def deduplicates(self) -> bool:
        return not self.aggregates and not self.joins


def shape_of(job: JobSpec, stream: DataFrame) -> Shape:
    """The shape of the transform. stream: its output of a stream."""
    steps = state_steps(stream)
    if any(step.kind == PROCESSOR for step in steps):
        reason = "a processor in Python computes its output by batches and timers"
        return Shape(None, None, reason, of_stream_alone=stream.schema)
    if len(steps) != 1:
        return Shape(None, None, f"the transform keeps state in {len(steps)} steps")
    [step] = steps
    timed = [key for key in step.keys if key.timed]
    watermark = job.state is not None and job.state.event_time is not None
    unjudged = _unjudged(step, timed, watermark=watermark)
    row_ends = outer_joins.row_ends(stream) if step.kind == "Join" else ()
    if row_ends is None:
        unjudged = "the range of the outer join is not one that the audit can compute"
    return Shape(step, timed[0] if timed else None, unjudged, row_ends or ())


def _unjudged(step: StateStep, timed: Sequence[StateKey], *, watermark: bool) -> str | None:
    if step.kind == "DeduplicateWithinWatermark":
        return "dropDuplicatesWithinWatermark keeps a record again once its state has ended"
    if timed and not watermark:
        return "the transform sets its watermark itself; declare source.eventTime instead"
    if len(timed) > 1:
        return "the transform groups by several event times"
    if any(key.session for key in timed):
        return "session windows are not built in the audit"
    if any(key.window for key in timed) and step.overlapping:
        return "windows that overlap are not built in the audit"
    if step.kind != "Aggregate" and watermark and not timed:
        return "duplicates are dropped by columns without the event time, although there is a watermark"
    return None


def _no_rows(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in records:
        pass
    yield from ()


def output_of(spark: SparkSession, job: JobSpec, records: DataFrame, shape: Shape) -> DataFrame:
    """The transform's output of these records; of what only the stream can compute, no rows: they are counted alone."""
    if shape.of_stream_alone is not None:
        return records.mapInArrow(_no_rows, shape.of_stream_alone)
    return transform.run_transform(spark, records, job.transform, job.state)


def compare(
    spark: SparkSession,
    job: JobSpec,
    sink: DecidingReader,
    moment: Moment,
    *,
    records: DataFrame,
    shape: Shape,
    doubts: Sequence[Doubt],
    counted: int,
    leeway: Leeway,
) -> tuple[Comparison, list[Doubt], list[str]]:
    """The comparison, with what else cannot be judged, and notes.

    records: the view `source` over all records that the state has counted. doubts: what cannot be judged so far.
    counted: as SinkReader.compare() takes it.
    """
    history = moment.history
    late, unjudged = limits(history, shape, doubts)
    counting = records
    if shape.timed and shape.step and not unjudged:
        counting = _counting(spark, job, records, shape.timed, history)
    output = output_of(spark, job, counting, shape)
    if shape.joins and not unjudged:
        ended = history.last.emitted_before * _MS
        output = outer_joins.without_later_rows(spark, output, shape.row_ends, ended)
    if not unjudged and not transform.is_deterministic(output):
        unjudged = [Doubt("the transform is not deterministic (rand(), uuid(), now() and the like)")]
    last_of_key = job.state is not None and job.state.output_mode == "update" and shape.aggregates
    # With leeway the last record of a key in the sink need not be the one that was decided last.
    required = _required(sink.to_sink_columns(output), last_of_key=last_of_key and leeway.is_none)
    of_order = list[Doubt]()
    if shape.aggregates and not unjudged:
        required, of_order, unjudged = audit_groups.without_order(spark, sink, output, required)
    key = sink.key_columns(last_of_key=last_of_key)
    unjudged = unjudged or _of_shared_keys(required.records, key)
    if not unjudged and shape.step and shape.step.rounds:
        required, unjudged = audit_groups.with_tolerances(spark, sink, output, required)
    all_doubts = [*doubts, *moment.doubts]
    comparison = sink.compare(required, None, all_doubts, counted)
    more = [*late, *of_order, *unjudged]
    if unjudged:
        return comparison.not_judged(), more, []
    numbered = history.is_complete and not history.last.accepted_loss and not any(d.topics for d in moment.doubts)
    if last_of_key and (keys := audit_groups.keys(spark, sink, output, required, comparison=comparison, leeway=leeway)):
        decided = history.records if numbered else None
        comparison, of_dropped = audit_groups.by_keys(
            comparison, keys, leeway, decided, lambda of_keys: sink.compare(of_keys, None, all_doubts, counted)
        )
        more += of_dropped
    differs = (
        comparison.unexpected
        or (comparison.lost and not leeway.losses)
        or (comparison.duplicated and not leeway.repeats)
    )
    if late:
        comparison = comparison.without_surplus()
        if not shape.aggregates and comparison.lost:
            return comparison.not_judged(), more, []
    if "sink" in comparison.metrics and last_of_key and numbered and leeway.is_none:
        comparison = _with_number(comparison, history.records)
    if shape.deduplicates and differs and not late:
        comparison, chosen = _with_candidates(spark, sink, comparison, output=output, doubts=doubts, counted=counted)
        more += chosen
    comparison, of_output, notes = audit_apart.judged(comparison, history, leeway)
    return comparison, [*more, *of_output], [*_notes(comparison, shape), *notes]


def limits(history: History, shape: Shape, doubts: Sequence[Doubt]) -> tuple[list[Doubt], list[Doubt]]:
    """Doubts about old windows, and about the output as a whole, which is then not judged."""
    if shape.unjudged:
        return [], [Doubt(f"{shape.unjudged}; the audit does not judge the output")]
    if any(doubt.lanes for doubt in doubts):
        return [], [Doubt("the state has counted records that are gone from the source; the audit does not judge it")]
    if history.last.accepted_loss and not history.is_complete:
        reason = (
            "the state of the pipeline was lost and began empty, as a person has accepted, and its first decisions are "
            "compacted or deleted; it is not known where the new state began to count, so the audit does not judge it"
        )
        return [], [Doubt(reason)]
    if history.last.accepted_loss:
        begin = ", ".join(f"{t}-{p} from {offset}" for (t, p), offset in sorted(history.begin.items()))
        return [
            Doubt(
                "the state of the pipeline was lost and began empty, as a person has accepted; the audit judges that "
                f"the output of the new state is there ({begin}), and not the records of the state before"
            )
        ], []
    if shape.timed is None or history.is_complete:
        return [], []
    first = history.batches[0]
    old = "records from before" if shape.joins else "windows that ended before"
    reason = (
        f"decisions before batch {first.number} are compacted or deleted; the audit does not judge {old} "
        f"{first.late_before / 1000:.0f} seconds since 1970, because it is not known which of their records were late"
    )
    return [Doubt(reason)], []


def _required(records: DataFrame, *, last_of_key: bool) -> Output:
    return Output(records, _OUTPUT, [0] * records.rdd.getNumPartitions(), ordered=False, last_of_key=last_of_key)


def _of_shared_keys(records: DataFrame, key: Sequence[str]) -> list[Doubt]:
    """A doubt if several records have the same key, of which the sink has the last one."""
    if not key:
        return []
    shared = records.groupBy(*map(named, key)).agg(F.count("*").alias(_COUNT))
    first = shared.filter(F.col(_COUNT) > 1).first()
    if first is None:
        return []
    shown = ", ".join(f"{name} {_shown(first[name])}" for name in key)
    return [Doubt(f"several records of the output have {shown}, and it is not known which of them is the last")]


def _shown(value: object) -> str:
    return repr(bytes(value) if isinstance(value, bytearray) else value)


def _counting(spark: SparkSession, job: JobSpec, records: DataFrame, key: StateKey, history: History) -> DataFrame:
    """The records that the output is of: not late, and in append mode of windows that have ended."""
    assert job.state is not None  # noqa: S101 (for mypy: it has a watermark)
    at = F.unix_micros(named(job.state.event_time or "").cast("timestamp"))
    [step] = state_steps(transform.run_transform(spark, records, job.transform, job.state))
    end: Column | None = at
    if key.window:
        of_batch = next(k for k in step.keys if k.name == key.name)
        size = window_size(spark, step, of_batch)
        if size is None:
            return records  # without a record in any window
        end = at - F.pmod(at - F.lit(size[1]), F.lit(size[0])) + F.lit(size[0])
    before = F.arrow_udf(_late_before(history), "long")("kafka.topic", "kafka.partition", "kafka.offset")
    late = F.coalesce(end <= before, F.lit(False))
    counting = records.observe("late", F.count_if(late).alias("records")).filter(~late)
    if job.state.output_mode == "append" and step.kind == "Aggregate":
        counting = counting.filter(end <= F.lit(history.last.emitted_before * _MS))
    return counting


def _late_before(history: History) -> Callable[[pa.Array, pa.Array, pa.Array], pa.Array]:
    """A function from topics, partitions and offsets to microseconds: a window that ended before them was late.

    Records in front of the first known batch were late at most where those of that batch were.
    """
    bounds = np.array([history.batches[0].late_before, *(b.late_before for b in history.batches)], np.int64) * _MS
    lanes = sorted({lane for batch in history.batches for lane in batch.end})
    # The batch of an offset is the first one that ends behind it. A lane that is not in a batch has no records there.
    ends = {
        lane: np.maximum.accumulate(
            np.array(
                [history.begin[lane], *(batch.end.get(lane, history.begin[lane]) for batch in history.batches)],
                np.int64,
            )
        )
        for lane in lanes
    }

    def late_before(topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        number = offsets.to_numpy(zero_copy_only=False)
        result = np.zeros(len(number), np.int64)
        for lane in lanes:
            here = pc.and_(pc.equal(topics, lane[0]), pc.equal(partitions, lane[1])).to_numpy(zero_copy_only=False)
            at = np.searchsorted(ends[lane], number[here], side="right")
            result[here] = bounds[np.minimum(at, len(bounds) - 1)]
        return pa.array(result)

    return late_before


def _with_number(comparison: Comparison, decided: int) -> Comparison:
    """With the earlier records of each key, of which only the number is known."""
    surplus = comparison.metrics["sink"]["records"] - decided
    lost, duplicated = comparison.lost + max(0, -surplus), comparison.duplicated + max(0, surplus)
    return replace(comparison, lost=lost, duplicated=duplicated, delivered=comparison.metrics["sink"]["records"])


def _with_candidates(
    spark: SparkSession,
    sink: SinkReader,
    comparison: Comparison,
    *,
    output: DataFrame,
    doubts: Sequence[Doubt],
    counted: int,
) -> tuple[Comparison, list[Doubt]]:
    """Only the certain faults, if the state may have another record of a key than the audit's run has.

    Certain is the number of records, and a record that is none of the candidates.
    """
    every = without_deduplication(spark, output)
    candidates = sink.compare(_required(sink.to_sink_columns(every), last_of_key=False), None, doubts, counted)
    foreign = candidates.unexpected
    others = comparison.delivered - foreign
    lost, duplicated = max(0, comparison.expected - others), max(0, others - comparison.expected)
    uncertain = max(0, comparison.unexpected - foreign)
    offending = tuple(o for o in candidates.offending if o.kind == "unexpected")
    changed = replace(
        comparison, lost=lost, duplicated=duplicated, unexpected=foreign, unjudged=uncertain, offending=offending
    )
    if not uncertain and not comparison.duplicated:
        return changed, []
    reason = (
        "records that are equal by the columns of dropDuplicates differ in the output; the audit judges their number, "
        "and that each is one of the candidates, but not that each key is there once"
    )
    return changed, [Doubt(reason)]


def _notes(comparison: Comparison, shape: Shape) -> list[str]:
    late = comparison.metrics.get("late", {}).get("records", 0)
    records = "record was" if late == 1 else "records were"
    passed = "the event time" if shape.joins else "the end of their window"
    return [f"{late} {records} late: the watermark had passed {passed}"] if late else []
