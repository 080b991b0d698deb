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

With a table as the sink, positions and rows are of one snapshot, and the database compares (audit_postgres.py).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import audit_compare, audit_limits, source, transform
from ackwright_stream.audit_kafka import KafkaView, Lane, Offsets
from ackwright_stream.audit_partitions import Layout
from ackwright_stream.audit_report import Report, text
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec, KafkaSink, PostgresSink, Reason, from_json
from ackwright_stream.reports import Ending, Failure, Verdict, report_ending
from ackwright_stream.sinks import kafka_columns, postgres_columns
from ackwright_stream.spark_internals.execution import source_partitions
from ackwright_stream.spark_internals.version import require_supported_version

_COMMITTED = {"kafka.isolation.level": "read_committed"}


def audit(spark: SparkSession, job: JobSpec, routes: Iterable[str] = ()) -> Report:
    """The report of a pipeline that may be running.

    routes: topics to which the transform may route records, read even if it routed none there; for a transform that
    names no topics they mean nothing. Raises JobError: INVALID_TRANSFORM (also for one that is not deterministic),
    POSITION_LOST, TOPIC_REPLACED, TOPIC_MISSING, and what reading Kafka can raise.
    """
    if isinstance(job.sink, PostgresSink):
        return _audit_table(spark, job)
    sink_spec = job.sink_of(KafkaSink)
    view = KafkaView(job)
    lanes = sorted(view.partitions(job.source.topics))
    recorded = view.lane_starts()  # before the positions, because a lane is recorded together with its first one
    first = view.positions(lanes)
    start, doubts = audit_limits.counting_from(job.group, lanes, recorded, first, view.earliest(lanes))
    passed = {lane: max(start[lane], first[lane] or 0) for lane in lanes}
    _check_log(job, view, passed)
    counted = view.count(start, passed)
    compaction, notes = audit_limits.compaction_of_source(view.compacted(job.source.topics), start, passed, counted)
    doubts += compaction

    required = _output(spark, job, start, passed, late=False)
    topics = _sink_topics(job, view, required, routes)
    sink = sorted(view.partitions(topics)) if topics else []
    earliest, end = view.earliest(sink), view.decided(sink)
    begin, old_output, loss_notes = audit_limits.output_of_old_topic(
        sink_spec.topic,
        view.topic_id(sink_spec.topic) if sink_spec.topic else "",
        len(job.source.topics),
        {lane: recorded[lane] for lane in lanes if lane in recorded},
        earliest,
    )
    doubts += old_output + audit_limits.removals_from_sink(view.compacted(topics), earliest, begin, end)
    notes += loss_notes
    layout = Layout(
        source=lanes,
        sink=sink,
        preserve=sink_spec.preserve_partition,
        incomplete={lane for doubt in doubts for lane in doubt.lanes},
        trimmed={topic for doubt in doubts for topic in doubt.topics},
    )

    until = _until(job, view, lanes, passed)
    expected = [audit_compare.expected_rows(required.records, required.lanes, layout, late=False)]
    if any(until[lane] > passed[lane] for lane in lanes):
        late = _output(spark, job, passed, until, late=True)
        expected.append(audit_compare.expected_rows(late.records, late.lanes, layout, late=True))
    actual = (
        audit_compare.actual_rows(source.read_batch(spark, job, topics, begin, end, **_COMMITTED), layout)
        if sink
        else None
    )
    counts = audit_compare.compare(expected, actual, layout)
    sent, others = counts.metrics["sent"]["records"], sum(counted.values())
    doubts += audit_limits.reader_disagrees(sent, others)
    if sent != others:  # a source record that the reader did not read may explain it
        counts = counts.without_surplus()
    malformed = counts.metrics.get("parsed", {}).get("malformed", 0)
    refused = malformed if not job.source.skip_malformed else 0
    notes += audit_limits.passed_although_malformed(refused)
    return Report(
        guarantee=job.guarantee,
        sent=sent,
        counted=others,
        expected=counts.expected,
        delivered=counts.delivered,
        lost=counts.lost + refused,
        missing=counts.missing,
        duplicated=counts.duplicated,
        unexpected=counts.unexpected,
        misplaced=counts.misplaced,
        out_of_order=counts.out_of_order,
        malformed=malformed,
        unjudged=counts.unjudged,
        lanes={f"{t}-{p}": {"from": start[t, p], "position": passed[t, p]} for t, p in lanes},
        unjudged_lanes=tuple(f"{t}-{p}" for t, p in lanes if (t, p) in layout.incomplete),
        offending=counts.offending,
        doubts=tuple(doubt.reason for doubt in doubts),
        notes=tuple(notes),
    )


def _audit_table(spark: SparkSession, job: JobSpec) -> Report:
    """The report of a pipeline into a table. Positions and rows are of one snapshot of the database."""
    from ackwright_stream.audit_postgres import TableView  # its client takes a while to import

    view = KafkaView(job)
    lanes = sorted(view.partitions(job.source.topics))
    with TableView(job) as table:
        recorded, positions = table.lane_starts(), table.positions()
        first = {lane: positions.get(lane) for lane in lanes}
        start, doubts = audit_limits.counting_from(job.group, lanes, recorded, first, view.earliest(lanes))
        passed = {lane: max(start[lane], first[lane] or 0) for lane in lanes}
        _check_log(job, view, passed)
        counted = view.count(start, passed)
        compaction, notes = audit_limits.compaction_of_source(view.compacted(job.source.topics), start, passed, counted)
        required = _output(spark, job, start, passed, late=False)
        metrics = table.expect(required.records, late=False)
        # Only at-least-once writes rows before it moves their positions.
        ends = view.stable(lanes) if job.guarantee is Guarantee.AT_LEAST_ONCE else passed
        until = {lane: max(passed[lane], ends[lane]) for lane in lanes}
        if until != passed:
            table.expect(_output(spark, job, passed, until, late=True).records, late=True)
        sent, others = metrics["sent"]["records"], sum(counted.values())
        known = {lane: recorded[lane] for lane in lanes if lane in recorded}
        _, old_output, _ = audit_limits.output_of_old_topic(None, "", len(job.source.topics), known, {})
        doubts += [*compaction, *old_output, *audit_limits.reader_disagrees(sent, others)]
        incomplete = {lane for doubt in doubts for lane in doubt.lanes}
        doubts += audit_limits.refused_late(table.late_refused)
        counts = table.compare(incomplete=bool(incomplete) or sent != others)
    malformed = metrics.get("parsed", {}).get("malformed", 0)
    refused = malformed if not job.source.skip_malformed else 0
    return Report(
        guarantee=job.guarantee,
        sent=sent,
        counted=others,
        expected=counts.expected,
        delivered=counts.delivered,
        lost=counts.lost + refused,
        missing=0,
        duplicated=counts.duplicated,
        unexpected=counts.unexpected,
        misplaced=0,
        out_of_order=0,
        malformed=malformed,
        unjudged=counts.unjudged,
        lanes={f"{t}-{p}": {"from": start[t, p], "position": passed[t, p]} for t, p in lanes},
        unjudged_lanes=tuple(f"{t}-{p}" for t, p in lanes if (t, p) in incomplete),
        offending=counts.offending,
        doubts=tuple(doubt.reason for doubt in doubts),
        notes=(*notes, *audit_limits.passed_although_malformed(refused)),
    )


def _check_log(job: JobSpec, view: KafkaView, passed: Offsets) -> None:
    for (topic, partition), end in view.written(passed).items():
        if passed[topic, partition] > end:
            raise JobError(
                Reason.TOPIC_REPLACED,
                f"the position of {topic}-{partition} in group {job.group} is {passed[topic, partition]}, but "
                f"the topic ends at {end}: "
                "it was recreated or truncated, so there is nothing to compare with",
            )


def _until(job: JobSpec, view: KafkaView, lanes: Sequence[Lane], passed: Offsets) -> dict[Lane, int]:
    """How far the source explains what is in the sink."""
    if job.guarantee is Guarantee.AT_LEAST_ONCE:
        # The job reads no further than the last stable offset either; an application upstream may keep a transaction
        # open for long.
        ends = view.stable(lanes)
        return {lane: max(passed[lane], ends[lane]) for lane in lanes}
    second = view.positions(lanes)
    return {lane: max(passed[lane], second[lane] or 0) for lane in lanes}


@dataclass(frozen=True)
class _Output:
    """The transform's output over a range of the source."""

    records: DataFrame  # with the columns of the sink
    lanes: Sequence[int]  # of each Spark partition
    routed: bool  # whether the transform names the topic of each record


def _output(spark: SparkSession, job: JobSpec, start: Offsets, until: Offsets, *, late: bool) -> _Output:
    """The transform's output over [start, until).

    Malformed records are counted and left out, whatever onMalformed says: the job may have stopped at one, and the
    audit must not.
    """
    suffix = "-late" if late else ""
    raw = source.read_batch(spark, job, {t for t, _ in until}, start, until)
    numbers = [sorted(until).index(lane) for lane in source_partitions(raw)]
    counted = raw.observe(f"sent{suffix}", F.count(F.lit(1)).alias("records"))
    records = source.parse(counted, replace(job.source, skip_malformed=True), metrics=f"parsed{suffix}")
    output = transform.run_transform(spark, records, job.transform)
    if not transform.is_deterministic(output):
        raise JobError(
            Reason.INVALID_TRANSFORM,
            "the transform is not deterministic (rand(), uuid(), now() and the like): a second run gives other "
            "output, so there is "
            "nothing to compare the sink with; take such values from the record (kafka.timestamp, kafka.offset)",
        )
    if isinstance(job.sink, PostgresSink):
        return _Output(postgres_columns.to_sink_columns(output, job.sink), numbers, routed=False)
    return _Output(
        kafka_columns.to_sink_columns(output, job.sink_of(KafkaSink)), numbers, kafka_columns.chooses_topic(output)
    )


def _sink_topics(job: JobSpec, view: KafkaView, output: _Output, routes: Iterable[str]) -> set[str]:
    """The topics to read as the sink: where the output belongs, and where else records of the pipeline may be."""
    sink = job.sink_of(KafkaSink)
    declared = {sink.topic} if sink.topic else set()
    if not output.routed:
        return declared
    named = {row["topic"] for row in output.records.select("topic").distinct().collect()}
    return declared | named | (view.existing(routes) - set(job.source.topics) - {sink.positions.lanes_topic})


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
