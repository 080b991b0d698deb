"""The audit of dead letters of stateful pipelines, which are of single records. The tests play the job.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.decisions import Decision
from ackwright_stream.jobspec import DeadLetterTopic, Guarantee, KafkaSink
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record
from integration.support.decided_batches import COUNTS, Batch, decided, row, stateful, stateful_audit

SENT = [b'{"name": "a"}', b"oops", b'{"name": "b"}', b"oops \xff", b'{"name": "a"}']
COUNTED = [row("a", 1), row("b", 1), row("a", 2)]
# Of SENT, each as many records as the batch has. What they are called is not used.
BATCHES = [Batch([("", 0)] * 3, watermark=0, output=2), Batch([("", 0)] * 2, watermark=0, output=1)]


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    pipeline = stateful_audit(kafka.bootstrap_servers, spark)
    pipeline.create("letters")
    letters = DeadLetterTopic(pipeline.topic("letters"), {})
    pipeline.job = replace(
        pipeline.job,
        source=replace(pipeline.job.source, dead_letter_fraction=0.5),
        sink=replace(pipeline.job.sink_of(KafkaSink), dead_letters=letters),
    )
    stateful(pipeline, COUNTS, "update", timed=False)
    return pipeline


def letter(pipeline: Pipeline, offset: int, value: bytes) -> Record:
    """The dead letter of a record of partition 0, as docs/dead-letters.md describes it."""
    own = {
        "group": pipeline.name.encode(),
        "topic": pipeline.topic("in").encode(),
        "partition": b"0",
        "offset": b"%d" % offset,
        "reason": b"why",
    }
    headers = tuple((f"ackwright.dead-letter.{name}", text) for name, text in own.items())
    return Record(None, value, headers=headers, topic=pipeline.topic("letters"))


def letters(pipeline: Pipeline) -> list[Record]:
    return [letter(pipeline, n, value) for n, value in enumerate(SENT) if value.startswith(b"oops")]


def audited(pipeline: Pipeline, output: list[Record], texts: list[str], *, passed: int = len(SENT)) -> Report:
    pipeline.produce("in", [Record(None, value) for value in SENT])
    pipeline.produce("out", output, "commit")
    pipeline.produce("decisions", [Record(pipeline.name.encode(), text.encode()) for text in texts], "commit")
    pipeline.passed({0: passed, 1: 0})
    return pipeline.audit()


Tamper = Callable[[Pipeline, list[Record]], list[Record]]


@pytest.mark.parametrize(
    ("tamper", "expected"),
    [
        (lambda p, w: w, (0, 0, 0)),
        (lambda p, w: w[1:], (1, 0, 0)),
        (lambda p, w: [*w, w[1]], (0, 1, 0)),
        (lambda p, w: [*w, letter(p, 0, SENT[0])], (0, 0, 1)),
    ],
    ids=["right", "lost", "twice", "counted-as-well"],
)
def test_each_malformed_record_is_a_dead_letter_once(
    pipeline: Pipeline, tamper: Tamper, expected: tuple[int, int, int]
) -> None:
    output = [*COUNTED, *tamper(pipeline, letters(pipeline))]
    report = audited(pipeline, output, decided(pipeline, BATCHES))
    assert (report.lost, report.duplicated, report.unexpected) == expected, report
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.HELD)
    assert (report.sent, report.expected, report.delivered, report.malformed) == (5, 2, 3, 2)
    assert report.dead_letters == len(output) - len(COUNTED)


@pytest.mark.parametrize(
    ("guarantee", "unexpected"),
    [(Guarantee.EXACTLY_ONCE, 1), (Guarantee.AT_LEAST_ONCE, 0), (Guarantee.AT_MOST_ONCE, 1)],
)
def test_dead_letters_of_a_batch_that_is_not_decided(pipeline: Pipeline, guarantee: Guarantee, unexpected: int) -> None:
    """At-least-once writes them before the decision."""
    pipeline.job = replace(pipeline.job, guarantee=guarantee)
    first = len(BATCHES[0].records)
    report = audited(pipeline, [*COUNTED[:2], *letters(pipeline)], decided(pipeline, BATCHES)[:1], passed=first)
    assert (report.lost, report.duplicated, report.unexpected) == (0, 0, unexpected), report
    assert (report.sent, report.malformed, report.dead_letters) == (3, 1, 2)


@pytest.mark.parametrize(("first", "lost"), [(0, 0), (1, 1)], ids=["there", "lost"])
def test_dead_letters_from_before_a_lost_state_are_compared(pipeline: Pipeline, first: int, lost: int) -> None:
    """The records of the state before are not judged. Each record was a dead letter, or was not, all the same."""
    last = Decision.of_json(decided(pipeline, BATCHES)[1])
    begun_again = replace(last, batch=0, offsets_before=None, accepted_loss="0123456789ab")
    output = [*COUNTED[:2], row("a", 1), *letters(pipeline)[first:]]
    report = audited(pipeline, output, [begun_again.to_json()])
    assert (report.lost, report.duplicated, report.unexpected) == (lost, 0, 0), report
    assert report.verdict is (Verdict.BROKEN if lost else Verdict.UNPROVEN)
    assert report.dead_letters == 2 - lost
