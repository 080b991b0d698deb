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

The report's notes name what it cannot know. Records that were in the sink before the pipeline's first run count as
unexpected. Records that retention or compaction removed from the sink count as lost. If retention removed records from
the source, the audit covers only those that are left, and does not judge records that could come from removed ones. If
the source topic was recreated and its loss accepted, the audit covers the records since then.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import audit_compare, source, transform
from ackwright_stream.audit_compare import Offending
from ackwright_stream.audit_kafka import KafkaView, Lane, LaneStart, Offsets
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec, Reason, from_json
from ackwright_stream.reports import Ending, Failure, report_ending
from ackwright_stream.sinks import kafka_columns
from ackwright_stream.spark_internals.execution import source_partitions
from ackwright_stream.spark_internals.version import require_supported_version

_COMMITTED = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Report:
    """The result of an audit."""

    guarantee: Guarantee
    sent: int  # source records that the positions have passed
    expected: int  # the transform's output for them
    delivered: int  # records in the sink
    lost: int
    duplicated: int
    unexpected: int
    out_of_order: int
    malformed: int  # of `sent`, those that do not parse
    unjudged: int  # in the sink and not expected, but may come from source records that retention removed
    lanes: Mapping[str, Mapping[str, int]]  # by source partition: where counting begins (from), and the position
    offending: tuple[Offending, ...]
    notes: tuple[str, ...]  # limits of the result

    @property
    def guarantee_held(self) -> bool:
        """Whether no fault occurred that the guarantee excludes.

        At-most-once allows lost and outOfOrder; at-least-once allows duplicated and, as a consequence of it,
        outOfOrder.
        """
        match self.guarantee:
            case Guarantee.EXACTLY_ONCE:
                faults = self.lost + self.duplicated + self.unexpected + self.out_of_order
            case Guarantee.AT_LEAST_ONCE:
                faults = self.lost + self.unexpected
            case Guarantee.AT_MOST_ONCE:
                faults = self.duplicated + self.unexpected
        return faults == 0

    def document(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "guarantee": str(self.guarantee),
            "guaranteeHeld": self.guarantee_held,
            "sent": self.sent,
            "expected": self.expected,
            "delivered": self.delivered,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "unexpected": self.unexpected,
            "outOfOrder": self.out_of_order,
            "malformed": self.malformed,
            "unjudged": self.unjudged,
            "lanes": {lane: dict(at) for lane, at in self.lanes.items()},
            "offending": [asdict(o) for o in self.offending],
            "notes": list(self.notes),
        }


def audit(spark: SparkSession, job: JobSpec) -> Report:
    """The report of a pipeline that may be running.

    Raises JobError: INVALID_TRANSFORM (also for one that is not deterministic), POSITION_LOST, TOPIC_REPLACED,
    TOPIC_MISSING, and what reading Kafka can raise.
    """
    view = KafkaView(job)
    lanes = sorted(view.partitions(job.source.topics))
    recorded = view.lane_starts()  # before the positions, because a lane is recorded together with its first one
    first = view.positions(lanes)
    earliest = view.earliest(lanes)
    start, notes, expired = _start(job, lanes, {lane: r.start for lane, r in recorded.items()}, first, earliest)
    passed = {lane: max(start[lane], first[lane] or 0) for lane in lanes}
    _check_log(job, view, passed)

    output, required = _expected(spark, job, start, passed, late=False)
    topics = {job.sink.topic} if job.sink.topic else set()
    if kafka_columns.chooses_topic(output):
        records = kafka_columns.to_sink_columns(output, job.sink)
        topics |= {row["topic"] for row in records.select("topic").distinct().collect()}
    sink = sorted(view.partitions(topics)) if topics else []
    begin, end = view.earliest(sink), view.decided(sink)
    notes += [
        f"{t}-{p} begins at offset {begin[t, p]}; records that were removed in front of it count as lost"
        for t, p in sink
        if begin[t, p]
    ]
    begin, loss_notes = _after_accepted_loss(job, view, [recorded[lane] for lane in lanes if lane in recorded], begin)
    notes += loss_notes

    until = _until(job, view, lanes, passed)
    expected = [required]
    if any(until[lane] > passed[lane] for lane in lanes):
        expected.append(_expected(spark, job, passed, until, late=True)[1])
    sink_names = [f"{t}-{p}" for t, p in sink]
    actual = (
        audit_compare.actual_rows(source.read_batch(spark, job, topics, begin, end, **_COMMITTED), sink_names)
        if sink
        else None
    )
    counts = audit_compare.compare(expected, actual, [f"{t}-{p}" for t, p in lanes], sink_names)
    malformed = counts.metrics.get("parsed", {}).get("malformed", 0)
    refused = malformed if not job.source.skip_malformed else 0
    if refused:
        notes.append(
            f"the positions have passed {refused} malformed {'record' if refused == 1 else 'records'} although "
            f"onMalformed is fail; "
            "they count as lost"
        )
    return Report(
        guarantee=job.guarantee,
        sent=counts.metrics["sent"]["records"],
        expected=counts.expected,
        delivered=counts.delivered,
        lost=counts.lost + refused,
        duplicated=counts.duplicated,
        unexpected=0 if expired else counts.unexpected,
        out_of_order=counts.out_of_order,
        malformed=malformed,
        unjudged=counts.unexpected if expired else 0,
        lanes={f"{t}-{p}": {"from": start[t, p], "position": passed[t, p]} for t, p in lanes},
        offending=tuple(
            replace(o, kind="unjudged") if expired and o.kind == "unexpected" else o for o in counts.offending
        ),
        notes=tuple(notes),
    )


def _start(
    job: JobSpec, lanes: Sequence[Lane], recorded: Offsets, first: Mapping[Lane, int | None], earliest: Offsets
) -> tuple[dict[Lane, int], list[str], bool]:
    """Where counting begins, notes, and whether retention removed source records that were perhaps delivered."""
    lost = [f"{t}-{p}" for t, p in lanes if (t, p) in recorded and first[t, p] is None]
    if lost:
        raise JobError(
            Reason.POSITION_LOST,
            f"group {job.group} no longer has a position for {', '.join(lost)}, so the audit cannot know where "
            f"to stop counting; "
            "restore the group's offsets",
        )
    began = {lane: recorded.get(lane, 0) for lane in lanes}
    start = {lane: max(began[lane], earliest[lane]) for lane in lanes}
    expired = [(t, p) for t, p in lanes if earliest[t, p] > began[t, p] and first[t, p] is not None]
    notes = [
        f"{t}-{p}: records from {began[t, p]} to {earliest[t, p]} are no longer in the source; the audit counts "
        f"from {earliest[t, p]} "
        "and does not judge records that it does not expect"
        for t, p in expired
    ]
    return start, notes, bool(expired)


def _after_accepted_loss(
    job: JobSpec, view: KafkaView, recorded: Sequence[LaneStart], begin: Offsets
) -> tuple[Offsets, list[str]]:
    """Where the sink's records of the current source topic begin, and notes about a topic whose loss was accepted.

    What is in front of that comes from the old topic, of which nothing is known. With several source topics it may also
    come from the others, and then counts.
    """
    recreated = [r for r in recorded if r.sink is not None]
    if not recreated:
        return begin, []
    topic = job.sink.topic
    # The ends of a sink that was recreated since are those of another topic; then all that is in the sink is judged.
    known = [r.sink for r in recreated if r.sink and topic and r.sink_id == view.topic_id(topic)]
    event = "a source topic was recreated and the loss of the old one accepted"
    if len(job.source.topics) > 1 or not known:
        return begin, [f"{event}; output of the old one counts as unexpected"]
    later = {
        (t, p): max(first, min(ends.get(p, 0) for ends in known)) if t == topic else first
        for (t, p), first in begin.items()
    }
    places = ", ".join(f"{t}-{p}@{offset}" for (t, p), offset in later.items() if offset > begin[t, p])
    return later, [
        f"{event}; the audit judges the sink from {places}" if places else f"{event} before the sink had any records"
    ]


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


def _expected(
    spark: SparkSession, job: JobSpec, start: Offsets, until: Offsets, *, late: bool
) -> tuple[DataFrame, DataFrame]:
    """The transform's output over [start, until), and the rows that audit_compare makes of it.

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
    return output, audit_compare.expected_rows(kafka_columns.to_sink_columns(output, job.sink), numbers, late=late)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a report for each jobspec on stdout, in JSON one per line. Returns the exit code.

    OK only if every guarantee held, FAILED if one did not, otherwise a code of jobspec.ExitCode.
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
        reports = [audit(spark, job) for job in jobs]
    except Exception as e:
        if options.verbose:
            traceback.print_exc()
        error = cause(e)
        return Ending(error.exit_code, Failure(error.reason, error.message)), []
    return Ending(ExitCode.OK if all(r.guarantee_held for r in reports) else ExitCode.FAILED), reports


def text(report: Report) -> str:
    """The report as text for people."""
    counts = report.document()
    names = ("sent", "expected", "delivered", "lost", "duplicated", "unexpected", "outOfOrder", "malformed", "unjudged")
    lines = [
        f"{report.guarantee}: {'held' if report.guarantee_held else 'BROKEN'}",
        *(f"  {n:<11}{counts[n]:>12,}" for n in names),
    ]
    lines += [
        f"  {o.kind}: {o.count} x topic {o.topic} key {o.key!r} value {o.value!r} at {o.where}"
        for o in report.offending
    ]
    return "\n".join([*lines, *(f"  note: {n}" for n in report.notes)]) + "\n"


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
