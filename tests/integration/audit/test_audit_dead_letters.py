"""The audit judges dead letters like output: each malformed record once, and no other. The tests play the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import DeadLetterTopic, Format, KafkaSink, Transform
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, ends

GOOD = [Record(b"k", b'{"n": %d}' % n, n % 2) for n in range(6)]
FILTERED = [Record(b"k", b'{"n": -1}')]
BAD = [Record(None, b"oops %d \xff" % n, n % 2, headers=(("h", b"\x00"), ("h", None))) for n in range(4)]
SENT = [*GOOD, *BAD, *FILTERED]
OUTPUT = [Record(b"k", b"%d" % n, n % 2) for n in range(6)]


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    pipeline = Pipeline(kafka.bootstrap_servers, spark)
    pipeline.create("letters")
    letters = DeadLetterTopic(pipeline.topic("letters"), {})
    pipeline.job = replace(
        pipeline.job,
        source=replace(pipeline.job.source, format=Format.JSON, schema="n BIGINT", dead_letter_fraction=0.5),
        transform=Transform(sql="SELECT kafka.key AS key, CAST(n AS STRING) AS value FROM source WHERE n >= 0"),
        sink=replace(pipeline.job.sink_of(KafkaSink), dead_letters=letters),
    )
    return pipeline


def letter(pipeline: Pipeline, record: Record, offset: int, group: str | None = None, reason: bytes = b"why") -> Record:
    """The dead letter of a record, as docs/dead-letters.md describes it."""
    own = {
        "group": (group or pipeline.name).encode(),
        "topic": pipeline.topic("in").encode(),
        "partition": b"%d" % record.partition,
        "offset": b"%d" % offset,
        "reason": reason,
    }
    headers = (*record.headers, *((f"ackwright.dead-letter.{name}", value) for name, value in own.items()))
    return replace(record, headers=headers, topic=pipeline.topic("letters"))


def letters(pipeline: Pipeline) -> list[Record]:
    """Those of SENT: the offset of a record is its number in its partition."""
    offsets = [sum(r.partition == SENT[i].partition for r in SENT[:i]) for i in range(len(SENT))]
    return [letter(pipeline, r, offset) for r, offset in zip(SENT, offsets, strict=True) if r in BAD]


def delivered(pipeline: Pipeline, output: list[Record], written: list[Record]) -> Report:
    pipeline.produce("in", SENT)
    pipeline.produce("out", [*output, *written], "commit")
    pipeline.passed(ends(SENT))
    return pipeline.audit()


Tamper = Callable[[Pipeline, list[Record]], list[Record]]


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (lambda p, w: w, (0, 0, 0)),
        (lambda p, w: w[1:], (1, 0, 0)),
        (lambda p, w: [*w, w[1]], (0, 1, 0)),
        (lambda p, w: [replace(w[0], value=b"another"), *w[1:]], (1, 0, 1)),
        (lambda p, w: [replace(w[0], headers=w[0].headers[1:]), *w[1:]], (1, 0, 1)),
        (lambda p, w: [letter(p, BAD[0], 77), *w[1:]], (1, 0, 1)),
        (lambda p, w: [*w, letter(p, GOOD[0], 0)], (0, 0, 1)),  # delivered as well
        (lambda p, w: [*w, replace(BAD[0], topic=None)], (0, 0, 1)),  # in the output as well
        (lambda p, w: [*w, letter(p, BAD[0], 77, group="another"), Record(None, b"x", topic=w[0].topic)], (0, 0, 0)),
        (lambda p, w: [letter(p, BAD[0], 3, reason=b"another"), *w[1:]], (0, 0, 0)),
    ],
    ids=[
        "right",
        "missing",
        "twice",
        "another value",
        "without its headers",
        "from another offset",
        "well-formed",
        "in the output",
        "of others",
        "another reason",
    ],
)
def test_each_kind_of_damage_is_reported(pipeline: Pipeline, tamper: Tamper, expected: tuple[int, int, int]) -> None:
    assert SENT.index(BAD[0]) == 6
    written = tamper(pipeline, letters(pipeline))
    report = delivered(pipeline, OUTPUT, written)
    assert (report.lost, report.duplicated, report.unexpected) == expected
    assert (report.verdict is Verdict.HELD) is (expected == (0, 0, 0))
    assert (report.sent, report.expected, report.malformed) == (len(SENT), len(OUTPUT), len(BAD))
    if report.verdict is Verdict.HELD:
        assert report.sent == report.expected + report.dead_letters + len(FILTERED)
