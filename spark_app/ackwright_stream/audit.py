"""`python -m ackwright_stream.audit --jobspec FILE`: an independent proof that a pipeline kept its guarantee.

Reads the source up to the pipeline's positions, runs the transform over it again as a batch, reads the sink as a
read_committed consumer, and compares the two as multisets of (topic, key, value, headers). It shares the transform with
the job, and no code that commits.

It is right while the pipeline runs, because of the order of its reads: positions P1, then the sink's end E, then
positions P2. A record in front of P1 has to be in front of E, or it is lost. A record in front of E comes from one in
front of P2, or nothing explains it: under exactly-once and at-most-once the position moves with the output or before
it. Under at-least-once it moves after the output, so there the source's end, read after E, takes the place of P2.

It counts records by content, so equal records are interchangeable: where one is missing and an equal one is there
twice, nothing shows.

What cannot be judged makes the verdict unproven, unless a fault is certain; the report's doubts say why. Output that is
not expected may come from source records that retention or compaction removed, or from the old topic of a recreated
one. Expected output that is not in the sink may have been removed from there.

Records that were in the sink before the pipeline's first run count as unexpected.

With a table as the sink, positions and rows are of one snapshot, and the database compares. What differs between sinks
is in audit_sinks/.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import audit_limits, audit_schemas, audit_state, source, transform
from ackwright_stream.audit_apart import Leeway
from ackwright_stream.audit_kafka import KafkaView, Lane, LaneStart, Offsets
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison, Report, text
from ackwright_stream.audit_sinks import registry as audit_sinks
from ackwright_stream.audit_sinks.base import DecidingReader, Output, SinkReader
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.formats import format_of
from ackwright_stream.formats.base import Parsed
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec, Reason, from_json
from ackwright_stream.reports import Ending, Failure, Verdict, report_ending
from ackwright_stream.spark_internals.execution import source_partitions
from ackwright_stream.spark_internals.version import require_supported_version


def audit(spark: SparkSession, job: JobSpec, routes: Iterable[str] = ()) -> Report:
    """The report of a pipeline that may be running.

    routes: topics to which the transform may route records, read even if it routed none there; for a transform that
    names no topics they mean nothing. Raises JobError: INVALID_TRANSFORM (also for one that is not deterministic),
    POSITION_LOST, TOPIC_REPLACED, TOPIC_MISSING, and what reading Kafka can raise.
    """
    job = audit_schemas.with_reader_schema(job)
    view = KafkaView(job)
    with audit_sinks.reader(spark, job, view, routes) as sink:
        if job.state is not None:
            return _of_state(spark, job, view, sink)
        passed = _passed(job, view, sink)
        contents = [(sink, _output)]
        if letters := sink.dead_letters():
            contents.append((letters, _malformed))
        required = [compute(spark, job, to, passed.start, passed.end, late=False) for to, compute in contents]
        doubts, notes = list(passed.doubts), list[str]()
        for (to, _), output in zip(contents, required, strict=True):
            more_doubts, more_notes = to.fix_content(output, passed.recorded)
            doubts += [doubt for doubt in more_doubts if doubt not in doubts]
            notes += more_notes
        comparisons = []
        for (to, compute), output in zip(contents, required, strict=True):
            explained = _explained(job, view, sink, passed.end, precedes=to.precedes_positions)
            late = compute(spark, job, to, passed.end, explained, late=True) if explained != passed.end else None
            comparisons.append(to.compare(output, late, doubts, passed.counted))
        comparison = comparisons[0].with_letters(comparisons[1]) if letters else comparisons[0]
    return _report(job, passed, comparison, doubts, [*passed.notes, *notes])


@dataclass(frozen=True)
class _Passed:
    """The part of the source whose output must be in the sink, because the positions have passed it."""

    recorded: Mapping[Lane, LaneStart]  # where its lanes began, as far as the store records it
    start: Offsets  # where counting begins
    end: Offsets  # the positions
    counted: int  # records, as another client than Spark counts them
    doubts: list[Doubt]
    notes: list[str]


def _of_state(spark: SparkSession, job: JobSpec, view: KafkaView, sink: SinkReader) -> Report:
    """The report of a stateful pipeline, whose output is of all records and not of each."""
    if not isinstance(sink, DecidingReader):
        raise JobError(
            Reason.INVALID_SPEC,
            f"the audit judges no stateful pipeline with sink.{job.sink.kind}, which has no history of decisions",
            "compare its rows by a query",
        )
    lanes = sorted(view.partitions(job.source.topics))
    none = view.earliest(lanes)
    stream = _view(job, source.read_stream(spark, job, "earliest"), late=True)
    shape = audit_state.shape_of(job, transform.run_transform(spark, stream, job.transform, job.state))
    records, _, _ = _records(spark, job, none, none, late=True)
    empty = sink.to_sink_columns(audit_state.output_of(spark, job, records, shape))
    leeway = _leeway(job, sink)
    moment = audit_state.fix_moment(job, sink, Output(empty, (), ()), lanes, leeway)
    if moment is None:
        return _without_decisions(spark, job, view, sink, shape=shape, lanes=lanes)
    history = moment.history
    passed = _counted(
        job, view, sink.lane_starts(), moment.positions, begin=history.begin if history.is_complete else None
    )
    records, _, _ = _records(spark, job, passed.start, passed.end, late=False)
    comparison, doubts, notes = audit_state.compare(
        spark,
        job,
        sink,
        moment,
        records=records,
        shape=shape,
        doubts=passed.doubts,
        counted=passed.counted,
        leeway=leeway,
    )
    doubts, notes = [*passed.doubts, *moment.doubts, *doubts], [*passed.notes, *moment.notes, *notes]
    if letters := sink.dead_letters():
        # Also those of a state before, whose loss was accepted: they are there, whatever became of the state.
        of_letters = passed
        if history.last.accepted_loss:
            of_letters = _counted(job, view, sink.lane_starts(), moment.positions)
        of_records, more_doubts, more_notes = _compared_letters(
            spark, job, view, sink, letters=letters, passed=of_letters
        )
        comparison = comparison.with_letters(of_records)
        doubts += [doubt for doubt in more_doubts if doubt not in doubts]
        notes += more_notes
    return _report(job, passed, comparison, doubts, notes)


def _compared_letters(
    spark: SparkSession, job: JobSpec, view: KafkaView, sink: SinkReader, *, letters: SinkReader, passed: _Passed
) -> tuple[Comparison, list[Doubt], list[str]]:
    """The dead letters of a stateful pipeline, compared with the malformed records that the positions have passed.

    Each is of one record and not of the state, so they are compared as those of a stateless pipeline.
    """
    required = _malformed(spark, job, letters, passed.start, passed.end, late=False)
    doubts, notes = letters.fix_content(required, passed.recorded)
    explained = _explained(job, view, sink, passed.end, precedes=letters.precedes_positions)
    late = _malformed(spark, job, letters, passed.end, explained, late=True) if explained != passed.end else None
    comparison = letters.compare(required, late, [*passed.doubts, *doubts], passed.counted)
    return comparison, [*passed.doubts, *doubts], notes


def _without_decisions(
    spark: SparkSession,
    job: JobSpec,
    view: KafkaView,
    sink: DecidingReader,
    *,
    shape: audit_state.Shape,
    lanes: Sequence[Lane],
) -> Report:
    """The report of a pipeline whose store has no decision: all decided ones are gone, or none was ever made."""
    if not sink.has_decided():
        raise JobError(
            Reason.UNEXPECTED, f"the pipeline {job.name} has decided no batch yet, so there is nothing to compare"
        )
    passed = _counted(job, view, sink.lane_starts(), sink.positions(lanes))
    records, _, _ = _records(spark, job, passed.start, passed.end, late=False)
    output = Output(sink.to_sink_columns(audit_state.output_of(spark, job, records, shape)), (), (), ordered=False)
    comparison = sink.compare(output, None, passed.doubts, passed.counted).not_judged()
    reason = (
        f"no decision of the pipeline is left in {job.sink.kind}: its history has expired, or an earlier release has "
        "made it; the audit does not judge the output"
    )
    return _report(job, passed, comparison, [*passed.doubts, Doubt(reason)], passed.notes)


def _leeway(job: JobSpec, sink: DecidingReader) -> Leeway:
    return Leeway(
        repeats=sink.writes_apart and job.guarantee is Guarantee.AT_LEAST_ONCE,
        losses=sink.writes_apart and job.guarantee is Guarantee.AT_MOST_ONCE,
        strict=job.guarantee is Guarantee.EXACTLY_ONCE,
    )


def _passed(job: JobSpec, view: KafkaView, sink: SinkReader) -> _Passed:
    lanes = sorted(view.partitions(job.source.topics))
    starts = sink.lane_starts()  # before the positions, because a lane is recorded together with its first one
    return _counted(job, view, starts, sink.positions(lanes))


def _counted(
    job: JobSpec,
    view: KafkaView,
    starts: Mapping[Lane, LaneStart],
    first: Mapping[Lane, int | None],
    begin: Offsets | None = None,
) -> _Passed:
    """first: the positions. begin: where counting begins in place of where the lanes began."""
    lanes = sorted(first)
    recorded = {lane: starts[lane] for lane in lanes if lane in starts}
    if begin is not None:
        recorded |= {lane: LaneStart(offset) for lane, offset in begin.items()}
    start, expired = audit_limits.counting_from(job.group, lanes, recorded, first, view.earliest(lanes))
    end = {lane: max(start[lane], first[lane] or 0) for lane in lanes}
    _check_log(job, view, end)
    counted = view.count(start, end)
    compacted, notes = audit_limits.compaction_of_source(view.compacted(job.source.topics), start, end, counted)
    return _Passed(recorded, start, end, sum(counted.values()), expired + compacted, notes)


def _check_log(job: JobSpec, view: KafkaView, passed: Offsets) -> None:
    for (topic, partition), end in view.written(passed).items():
        if passed[topic, partition] > end:
            raise JobError(
                Reason.TOPIC_REPLACED,
                f"the position of {topic}-{partition} in group {job.group} is {passed[topic, partition]}, but "
                f"the topic ends at {end}: "
                "it was recreated or truncated, so there is nothing to compare with",
            )


def _explained(job: JobSpec, view: KafkaView, sink: SinkReader, passed: Offsets, *, precedes: bool) -> dict[Lane, int]:
    """How far the source explains what is in the sink, read after the sink's content is fixed.

    precedes: as SinkReader.precedes_positions.
    """
    # Only at-least-once writes before it moves its positions, or any guarantee but at-most-once what is in another
    # store than they are, and at-most-once as well if the pipeline is stateful. The job reads no further than the last
    # stable offset; an application upstream may keep a transaction open for long.
    writes_first = job.guarantee is Guarantee.AT_LEAST_ONCE or (
        precedes and (job.state is not None or job.guarantee is not Guarantee.AT_MOST_ONCE)
    )
    ends: Mapping[Lane, int | None] = view.stable(passed) if writes_first else sink.positions(passed)
    return {lane: max(offset, ends[lane] or 0) for lane, offset in passed.items()}


def _output(
    spark: SparkSession, job: JobSpec, sink: SinkReader, start: Offsets, until: Offsets, *, late: bool
) -> Output:
    """The transform's output over [start, until).

    Malformed records are counted and left out, whatever onMalformed says: the job may have stopped at one, and the
    audit must not.
    """
    records, lanes, numbers = _records(spark, job, start, until, late=late)
    output = transform.run_transform(spark, records, job.transform)
    if not transform.is_deterministic(output):
        raise JobError(
            Reason.INVALID_TRANSFORM,
            "the transform is not deterministic (rand(), uuid(), now() and the like): a second run gives other "
            "output, so there is "
            "nothing to compare the sink with; take such values from the record (kafka.timestamp, kafka.offset)",
        )
    return Output(sink.to_sink_columns(output), lanes, numbers)


def _malformed(
    spark: SparkSession, job: JobSpec, sink: SinkReader, start: Offsets, until: Offsets, *, late: bool
) -> Output:
    """The malformed records in [start, until), as dead letters. sink: their reader."""
    parsed, lanes, numbers = _parsed(spark, job, start, until, late=late)
    return Output(sink.to_sink_columns(source.malformed(parsed)), lanes, numbers)


def _records(
    spark: SparkSession, job: JobSpec, start: Offsets, until: Offsets, *, late: bool
) -> tuple[DataFrame, Sequence[Lane], Sequence[int]]:
    """The view `source` over [start, until), with the lanes and numbers of Output."""
    parsed, lanes, numbers = _parsed(spark, job, start, until, late=late)
    return _lenient(job, parsed, late=late), lanes, numbers


def _parsed(
    spark: SparkSession, job: JobSpec, start: Offsets, until: Offsets, *, late: bool
) -> tuple[Parsed, Sequence[Lane], Sequence[int]]:
    """The records in [start, until), counted; with the lanes and numbers of Output."""
    raw = source.read_batch(spark, job, {t for t, _ in until}, start, until)
    lanes = sorted(until)
    numbers = [lanes.index(lane) for lane in source_partitions(raw)]
    counted = raw.observe("sent-late" if late else "sent", F.count(F.lit(1)).alias("records"))
    return _parse(job, counted), lanes, numbers


def _view(job: JobSpec, raw: DataFrame, *, late: bool) -> DataFrame:
    """The view `source`, from the columns of Spark's Kafka source, as a stream or a batch."""
    return _lenient(job, _parse(job, raw), late=late)


def _parse(job: JobSpec, raw: DataFrame) -> Parsed:
    if job.source.subject is not None:
        return audit_schemas.parsed(raw, job.source, job.schema_registry)
    return format_of(job.source.format).parse(source.with_metadata(raw), job.source)


def _lenient(job: JobSpec, parsed: Parsed, *, late: bool) -> DataFrame:
    lenient = replace(job.source, skip_malformed=True)
    return parsed.view(source.checked(parsed, lenient, "parsed-late" if late else "parsed"))


def _report(
    job: JobSpec, passed: _Passed, comparison: Comparison, doubts: Sequence[Doubt], notes: Sequence[str]
) -> Report:
    sent = comparison.metrics["sent"]["records"]
    malformed = comparison.metrics.get("parsed", {}).get("malformed", 0)
    stays = job.source.skip_malformed or job.source.dead_letter_fraction is not None
    refused = 0 if stays else malformed
    every_doubt = (
        *doubts,
        *audit_limits.reader_disagrees(sent, passed.counted),
        *audit_limits.refused_late(comparison.refused_late),
    )
    incomplete = {lane for doubt in every_doubt for lane in doubt.lanes}
    return Report(
        guarantee=job.guarantee,
        sent=sent,
        counted=passed.counted,
        expected=comparison.expected,
        delivered=comparison.delivered,
        lost=comparison.lost + refused,
        missing=comparison.missing,
        duplicated=comparison.duplicated,
        unexpected=comparison.unexpected,
        misplaced=comparison.misplaced,
        out_of_order=comparison.out_of_order,
        malformed=malformed,
        dead_letters=comparison.dead_letters,
        unjudged=comparison.unjudged,
        lanes={f"{t}-{p}": {"from": passed.start[t, p], "position": end} for (t, p), end in passed.end.items()},
        unjudged_lanes=tuple(f"{t}-{p}" for t, p in passed.end if (t, p) in incomplete),
        offending=comparison.offending,
        doubts=tuple(doubt.reason for doubt in every_doubt),
        notes=(*notes, *audit_limits.passed_although_malformed(refused)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a report for each jobspec on stdout, in JSON one per line. Returns the exit code.

    OK only if every guarantee held, FAILED if one did not, UNPROVEN if that is not known, otherwise a code of
    jobspec.ExitCode.
    """
    options = _parser().parse_args(arguments)
    # The JVM writes warnings to the standard output that it inherits, and programs read ours; so it inherits standard
    # error for it.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    ending, reports = _run(options)
    with out:
        for report in reports:
            document = json.dumps(report.document(), ensure_ascii=False) + "\n"
            out.write(document if options.output == "json" else text(report))
    report_ending(ending, options.ending)
    return ending.exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ackwright_stream.audit", description="Counts what a pipeline lost and duplicated."
    )
    parser.add_argument(
        "--jobspec",
        type=Path,
        required=True,
        action="append",
        help="a jobspec, JSON; may be repeated, Spark is started once",
    )
    parser.add_argument(
        "--route",
        action="append",
        default=[],
        metavar="TOPIC",
        help="a topic to which a transform with a column topic may route records; may be repeated",
    )
    parser.add_argument("-o", "--output", choices=("json", "text"), default="text")
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of this process alone"
    )
    parser.add_argument(
        "--ending", type=Path, metavar="FILE", help="a file for the exit code and the reason of a failure, JSON"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="stack traces")
    return parser


def _run(options: argparse.Namespace) -> tuple[Ending, list[Report]]:
    """The ending and the reports, of which there are none after a failure."""
    try:
        settings = dict(setting.split("=", 1) for setting in options.conf)
        jobs = [from_json(file.read_text()) for file in options.jobspec]
        jobs = [replace(job, spark={**job.spark, **settings}) for job in jobs]
    except (OSError, ValueError) as e:
        if options.verbose:
            traceback.print_exc()
        message = f"{', '.join(map(str, options.jobspec))}: {e}"
        return Ending(ExitCode.INVALID, Failure(Reason.INVALID_SPEC, message)), []
    try:
        spark = _start_spark(jobs[0])
        reports = [audit(spark, job, options.route) for job in jobs]
    except Exception as e:
        if options.verbose:
            traceback.print_exc()
        error = cause(e)
        return Ending(error.exit_code, error.failure), []
    return Ending(Verdict.worst(report.verdict for report in reports).exit_code), reports


def _start_spark(job: JobSpec) -> SparkSession:
    builder = SparkSession.builder.appName(f"audit of {job.namespace}.{job.name}").config(
        "spark.ui.showConsoleProgress", "false"
    )
    # The job's settings decide how values are read (time zone, ANSI mode); those that concern streams alone do no harm.
    # Adaptive execution would drop the plan of an empty result, and with it the observed counts. Workers are Spark's
    # own, because the job's import its commit code.
    settings = {**job.spark, "spark.sql.adaptive.enabled": "false", "spark.python.daemon.module": "pyspark.daemon"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    require_supported_version(spark)
    spark.sparkContext.setLogLevel("OFF")
    # Equal records are grouped by shuffles, for which the default of 200 partitions is far too many here.
    spark.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * spark.sparkContext.defaultParallelism)))
    return spark


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the threads of Spark and Kafka's clients must neither delay the end nor change the exit code
