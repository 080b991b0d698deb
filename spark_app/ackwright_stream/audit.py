"""`python -m ackwright_stream.audit --jobspec FILE`: an independent proof that a pipeline kept its guarantee.

Reads the source up to the pipeline's positions, runs the transform over it once more as a batch, reads the sink as a read_committed
consumer, and compares the two as multisets of (topic, key, value, headers). It shares the transform with the job, and no code that commits.

It is right while the pipeline runs. The order of its readings makes it so: positions P1, then the sink's end E, then positions P2. What is
before P1 has to be in front of E, or it is lost. What is in front of E comes from before P2, or nothing explains it: under exactly-once and
at-most-once the position moves with the output or before it. Under at-least-once it moves after the output, so there the source's end,
read after E, stands for P2.

It counts records by content, so equal ones stand for one another: where one is missing and an equal one is there twice, nothing shows.

What it cannot know, it says (notes): records that were in the sink before the pipeline's first run count as unexpected; records that
retention or compaction removed from the sink count as lost; of records that retention removed from the source, nothing is known, so the
audit then speaks only of what is left, and does not judge records that could come from what is gone. When the source topic was made anew
and its loss accepted, it speaks of what came after that.
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
from ackwright_stream.audit_kafka import Beginning, KafkaView, Lane, Offsets
from ackwright_stream.errors import JobError
from ackwright_stream.failures import cause
from ackwright_stream.jobspec import ExitCode, Guarantee, JobSpec, Reason, from_json
from ackwright_stream.sinks import kafka_columns
from ackwright_stream.spark_internals.execution import source_partitions
from ackwright_stream.spark_internals.version import require_supported_version

_COMMITTED = {"kafka.isolation.level": "read_committed"}


@dataclass(frozen=True)
class Report:
    """What the audit found. sent: source records that the positions have passed. expected: what the transform makes of them. delivered:
    records in the sink. malformed: source records among `sent` that do not parse. unjudged: records in the sink that are not expected, but
    could come from source records that are gone. lanes: per source partition where counting began, and the position. notes: limits of
    what was found."""

    guarantee: Guarantee
    sent: int
    expected: int
    delivered: int
    lost: int
    duplicated: int
    unexpected: int
    out_of_order: int
    malformed: int
    unjudged: int
    lanes: Mapping[str, Mapping[str, int]]
    offending: tuple[Offending, ...]
    notes: tuple[str, ...]

    @property
    def guarantee_held(self) -> bool:
        """lost and outOfOrder may be under at-most-once; duplicated and, as a consequence of it, outOfOrder under at-least-once."""
        match self.guarantee:
            case Guarantee.EXACTLY_ONCE:
                wrong = self.lost + self.duplicated + self.unexpected + self.out_of_order
            case Guarantee.AT_LEAST_ONCE:
                wrong = self.lost + self.unexpected
            case Guarantee.AT_MOST_ONCE:
                wrong = self.duplicated + self.unexpected
        return wrong == 0

    def document(self) -> dict[str, Any]:
        """The report as JSON has it."""
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


@dataclass(frozen=True)
class _Range:
    """The source to look at: start up to passed has to be in the sink; passed up to until may be."""

    start: Offsets
    passed: Offsets
    until: Offsets


def audit(spark: SparkSession, job: JobSpec) -> Report:
    """Audits a pipeline, running or not. Raises JobError: INVALID_TRANSFORM (also for what is not deterministic), POSITION_LOST,
    TOPIC_REPLACED, TOPIC_MISSING, and what reading Kafka can raise."""
    view = KafkaView(job)
    lanes = sorted(view.partitions(job.source.topics))
    begun = view.beginnings()  # before the positions: a lane is recorded together with its first one
    first = view.positions(lanes)
    earliest = view.earliest(lanes)
    start, notes, gone = _start(job, lanes, {lane: b.start for lane, b in begun.items()}, first, earliest)
    passed = {lane: max(start[lane], first[lane] or 0) for lane in lanes}
    _check_log(job, view, passed)

    early_out, early = _expected(spark, job, start, passed, late=False)
    topics = {job.sink.topic} if job.sink.topic else set()
    if kafka_columns.chooses_topic(early_out):
        topics |= {
            r["topic"] for r in kafka_columns.to_sink_columns(early_out, job.sink).select("topic").distinct().collect()
        }
    sink = sorted(view.partitions(topics)) if topics else []
    begin, end = view.earliest(sink), view.decided(sink)
    notes += [
        f"{t}-{p} begins at offset {begin[t, p]}: what was removed before it counts as lost"
        for t, p in sink
        if begin[t, p]
    ]

    begin, given_up = _after_the_loss(job, view, [begun[lane] for lane in lanes if lane in begun], begin)
    notes += given_up

    until = _until(job, view, lanes, passed)
    expected = [early]
    if any(until[lane] > passed[lane] for lane in lanes):
        expected.append(_expected(spark, job, passed, until, late=True)[1])
    sink_names = [f"{t}-{p}" for t, p in sink]
    actual = (
        audit_compare.actual_rows(source.read_batch(spark, job, topics, begin, end, **_COMMITTED), sink_names)
        if sink
        else None
    )
    found = audit_compare.compare(expected, actual, [f"{t}-{p}" for t, p in lanes], sink_names)
    sent, malformed = found.metrics["sent"]["records"], found.metrics.get("parsed", {}).get("malformed", 0)
    refused = malformed if not job.source.skip_malformed else 0
    if refused:
        notes.append(
            f"the positions have passed {refused} malformed records although onMalformed is fail; they count as lost"
        )
    return Report(
        guarantee=job.guarantee,
        sent=sent,
        expected=found.expected,
        delivered=found.delivered,
        lost=found.lost + refused,
        duplicated=found.duplicated,
        unexpected=0 if gone else found.unexpected,
        out_of_order=found.out_of_order,
        malformed=malformed,
        unjudged=found.unexpected if gone else 0,
        lanes={f"{t}-{p}": {"from": start[t, p], "position": passed[t, p]} for t, p in lanes},
        offending=tuple(replace(o, kind="unjudged") if gone and o.kind == "unexpected" else o for o in found.offending),
        notes=tuple(notes),
    )


def _start(
    job: JobSpec, lanes: Sequence[Lane], recorded: Offsets, first: Mapping[Lane, int | None], earliest: Offsets
) -> tuple[dict[Lane, int], list[str], bool]:
    """Where to count from, what to say about it, and whether records that the pipeline may have delivered are gone from the source."""
    lost = [f"{t}-{p}" for t, p in lanes if (t, p) in recorded and first[t, p] is None]
    if lost:
        raise JobError(
            Reason.POSITION_LOST,
            f"group {job.group} has no position for {', '.join(lost)}, which it once had: up to where to count is not known; "
            "restore the group's offsets",
        )
    began = {lane: recorded.get(lane, 0) for lane in lanes}
    start = {lane: max(began[lane], earliest[lane]) for lane in lanes}
    gone = [(t, p) for t, p in lanes if earliest[t, p] > began[t, p] and first[t, p] is not None]
    notes = [
        f"{t}-{p}: records from {began[t, p]} to {earliest[t, p]} are gone from the source; counted from {earliest[t, p]} on, and "
        "records that are not expected are not judged"
        for t, p in gone
    ]
    return start, notes, bool(gone)


def _after_the_loss(
    job: JobSpec, view: KafkaView, begun: Sequence[Beginning], begin: Offsets
) -> tuple[Offsets, list[str]]:
    """Where to begin in the sink if the source topic was made anew, and what to say about it: nothing in front of that is of the present
    topic, and of the old one nothing is known. With several source topics records of the others may be there, which do count."""
    anew = [b for b in begun if b.sink is not None]
    if not anew:
        return begin, []
    topic = job.sink.topic
    # A sink that was made anew itself ends elsewhere: what is in it then is all to be judged.
    known = [b.sink for b in anew if b.sink and topic and b.sink_id == view.topic_id(topic)]
    said = "a source topic was made anew and the loss of the old one accepted"
    if len(job.source.topics) > 1 or not known:
        return begin, [f"{said}; what the old one's records became counts as unexpected"]
    later = {
        (t, p): max(first, min(ends.get(p, 0) for ends in known)) if t == topic else first
        for (t, p), first in begin.items()
    }
    places = ", ".join(f"{t}-{p}@{offset}" for (t, p), offset in later.items() if offset > begin[t, p])
    return later, [
        f"{said}; the sink is judged from {places} on" if places else f"{said} before the sink had any records"
    ]


def _check_log(job: JobSpec, view: KafkaView, passed: Offsets) -> None:
    for (topic, partition), end in view.written(passed).items():
        if passed[topic, partition] > end:
            raise JobError(
                Reason.TOPIC_REPLACED,
                f"the position of {topic}-{partition} in group {job.group} is {passed[topic, partition]}, but the topic ends at {end}: "
                "it was created anew or cut; there is nothing to compare with",
            )


def _until(job: JobSpec, view: KafkaView, lanes: Sequence[Lane], passed: Offsets) -> dict[Lane, int]:
    if job.guarantee is Guarantee.AT_LEAST_ONCE:
        ends = view.stable(
            lanes
        )  # the job reads no further either: an application upstream may keep its transactions open for long
        return {lane: max(passed[lane], ends[lane]) for lane in lanes}
    second = view.positions(lanes)
    return {lane: max(passed[lane], second[lane] or 0) for lane in lanes}


def _expected(
    spark: SparkSession, job: JobSpec, start: Offsets, until: Offsets, *, late: bool
) -> tuple[DataFrame, DataFrame]:
    """The transform's output over [start, until), and the same as rows to compare.

    Malformed records are counted and left out, whatever onMalformed says: the job may not have got past them, the audit has to."""
    suffix = "-late" if late else ""
    raw = source.read_batch(spark, job, {t for t, _ in until}, start, until)
    # The Spark partitions' order is the reader's own; ask it, so that a record's source partition is known and not assumed.
    numbers = [sorted(until).index(lane) for lane in source_partitions(raw)]
    counted = raw.observe(f"sent{suffix}", F.count(F.lit(1)).alias("records"))
    records = source.parse(counted, replace(job.source, skip_malformed=True), metrics=f"parsed{suffix}")
    out = transform.run_transform(spark, records, job.transform)
    if not transform.is_deterministic(out):
        raise JobError(
            Reason.INVALID_TRANSFORM,
            "the transform is not deterministic (rand(), uuid(), now() and their like): run again it gives another output, so there is "
            "nothing to compare the sink with; take such values from the record (kafka.timestamp, kafka.offset)",
        )
    return out, audit_compare.expected_rows(kafka_columns.to_sink_columns(out, job.sink), numbers, late=late)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a report for each jobspec on stdout, as JSON one on each line. Exit code: OK only if every guarantee held, FAILED if one did
    not, otherwise as in jobspec.ExitCode."""
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
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a Spark setting of this very process"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="stack traces")
    given = parser.parse_args(arguments)
    # The JVM writes warnings to the standard output that it inherits; a program reads ours. So the JVM gets standard error for it.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        jobs = [from_json(file.read_text()) for file in given.jobspec]
        more = dict(setting.split("=", 1) for setting in given.conf)
        jobs = [replace(job, spark={**job.spark, **more}) for job in jobs]
    except (OSError, ValueError) as e:
        return _failed(
            f"{Reason.INVALID_SPEC}: {', '.join(map(str, given.jobspec))}: {e}", ExitCode.INVALID, given.verbose
        )
    try:
        spark = _start_spark(jobs[0])
        reports = [audit(spark, job) for job in jobs]
    except Exception as e:
        error = cause(e)
        return _failed(str(error), error.exit_code, given.verbose)
    with out:
        for report in reports:
            out.write(
                json.dumps(report.document(), ensure_ascii=False) + "\n" if given.output == "json" else text(report)
            )
    return ExitCode.OK if all(r.guarantee_held for r in reports) else ExitCode.FAILED


def text(report: Report) -> str:
    """The report for a person."""
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
    # The job's settings decide how values are read (time zone, ANSI mode); those that serve streams alone do no harm. Equal records are
    # brought together by shuffles, for which the default of 200 partitions is far too many here. Adaptive execution drops the plan of an
    # empty result, and with it what was counted on the way. Workers are Spark's own: the job's have its commit code loaded.
    settings = {**job.spark, "spark.sql.adaptive.enabled": "false", "spark.python.daemon.module": "pyspark.daemon"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    require_supported_version(spark)
    spark.sparkContext.setLogLevel("OFF")
    spark.conf.set("spark.sql.shuffle.partitions", str(max(4, 2 * spark.sparkContext.defaultParallelism)))
    return spark


def _failed(sentence: str, code: ExitCode, verbose: bool) -> int:
    if verbose:
        traceback.print_exc()
    sys.stderr.write(f"ackwright: {sentence}\n")
    return code


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the clients' and Spark's threads must not hold up the end, nor change its code
