"""The audit judges stateful pipelines that are at-least-once or at-most-once. The tests play the job.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, wrong
from integration.support.decided_batches import COUNTS, WINDOWS, Batch, audited, row, stateful, stateful_audit

LEAST, MOST = Guarantee.AT_LEAST_ONCE, Guarantee.AT_MOST_ONCE
HELD, BROKEN, UNPROVEN = Verdict.HELD, Verdict.BROKEN, Verdict.UNPROVEN


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    return stateful_audit(kafka.bootstrap_servers, spark)


def judged(pipeline: Pipeline, guarantee: Guarantee, batches: list[Batch], output: list[Record]) -> Report:
    """The report on a pipeline with this guarantee."""
    pipeline.job = replace(pipeline.job, guarantee=guarantee)
    return audited(pipeline, batches, output)


# The watermark is 5 seconds behind the newest event time.
TIMED = [
    Batch([("a", 1), ("a", 2), ("a", 12)], watermark=0, output=0),
    Batch([("a", 25)], watermark=7, output=0),
    Batch([], watermark=20, output=2),
]
ENDED = [row("0", 2), row("10", 1)]


@pytest.mark.parametrize(
    ("guarantee", "output", "expected", "verdict"),
    [
        (LEAST, ENDED, (0, 0, 0, 0), HELD),
        (LEAST, [*ENDED, *ENDED], (0, 2, 0, 0), HELD),
        (LEAST, ENDED[:1], (1, 0, 0, 0), BROKEN),
        (LEAST, [ENDED[0], ENDED[0]], (1, 1, 0, 0), BROKEN),
        (LEAST, [*ENDED, row("20", 1)], (0, 0, 0, 0), UNPROVEN),  # of a batch that is not decided, perhaps
        (MOST, ENDED, (0, 0, 0, 0), HELD),
        (MOST, [], (2, 0, 0, 0), HELD),
        (MOST, [ENDED[0], ENDED[0]], (1, 1, 0, 0), BROKEN),
        (MOST, [*ENDED, row("20", 1)], (0, 0, 1, 0), BROKEN),
    ],
    ids=[
        "right", "repeated", "lost", "lost-behind-a-repeated-one", "undecided",
        "right-most", "all-lost", "twice", "foreign",
    ],
)  # fmt: skip
def test_windows(
    pipeline: Pipeline,
    guarantee: Guarantee,
    output: list[Record],
    expected: tuple[int, int, int, int],
    verdict: Verdict,
) -> None:
    stateful(pipeline, WINDOWS, "append")
    report = judged(pipeline, guarantee, TIMED, output)
    assert (wrong(report), report.verdict) == (expected, verdict), report


UNTIMED = [
    Batch([("a", 0), ("b", 0), ("a", 0)], watermark=0, output=2),
    Batch([("a", 0)], watermark=0, output=1),
]
COUNTED = [row("a", 2), row("b", 1), row("a", 3)]


@pytest.mark.parametrize(
    ("guarantee", "output", "expected", "verdict"),
    [
        (LEAST, COUNTED, (0, 0, 0, 0), HELD),
        (LEAST, [*COUNTED, row("a", 2)], (0, 1, 0, 0), HELD),  # late, of a driver that was replaced
        (LEAST, [*COUNTED, row("a", 3), row("b", 1)], (0, 2, 0, 0), HELD),
        (LEAST, COUNTED[:2], (1, 0, 0, 0), BROKEN),
        (LEAST, [*COUNTED[:2], row("a", 2)], (1, 0, 0, 0), BROKEN),
        (LEAST, [*COUNTED, row("c", 1)], (0, 1, 0, 0), UNPROVEN),
        (MOST, COUNTED, (0, 0, 0, 0), HELD),
        (MOST, COUNTED[:2], (1, 0, 0, 0), HELD),
        (MOST, [COUNTED[2], *COUNTED[:2]], (0, 0, 0, 0), HELD),
        (MOST, [*COUNTED, row("a", 3)], (0, 1, 0, 0), BROKEN),
        (MOST, [*COUNTED[:2], row("c", 1)], (1, 0, 1, 0), BROKEN),
    ],
    ids=[
        "right", "older", "repeated", "lost", "lost-behind-a-repeated-one", "undecided",
        "right-most", "last-lost", "late", "twice", "foreign",
    ],
)  # fmt: skip
def test_of_counts_the_last_one_of_each_key_is_required_anywhere_and_all_are_numbered(
    pipeline: Pipeline,
    guarantee: Guarantee,
    output: list[Record],
    expected: tuple[int, int, int, int],
    verdict: Verdict,
) -> None:
    stateful(pipeline, COUNTS, "update", timed=False)
    report = judged(pipeline, guarantee, UNTIMED, output)
    assert (wrong(report), report.verdict) == (expected, verdict), report
    assert report.delivered == len(output)


DISTINCT = "SELECT name AS key, 'seen' AS value FROM (SELECT DISTINCT name FROM source)"
ONCE = [row("a", "seen"), row("b", "seen")]


@pytest.mark.parametrize(
    ("guarantee", "output", "expected", "verdict"),
    [
        (LEAST, [*ONCE, *ONCE], (0, 2, 0, 0), HELD),
        (LEAST, ONCE[:1], (1, 0, 0, 0), BROKEN),
        (MOST, ONCE[:1], (1, 0, 0, 0), HELD),
        (MOST, [*ONCE, *ONCE[:1]], (0, 1, 0, 0), BROKEN),
    ],
)
def test_deduplicated_records(
    pipeline: Pipeline,
    guarantee: Guarantee,
    output: list[Record],
    expected: tuple[int, int, int, int],
    verdict: Verdict,
) -> None:
    stateful(pipeline, DISTINCT, "update", timed=False)
    report = judged(pipeline, guarantee, UNTIMED, output)
    assert (wrong(report), report.verdict) == (expected, verdict), report
