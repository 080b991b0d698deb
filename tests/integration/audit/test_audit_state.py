"""The audit judges the output of state: windows, last counts by key, kept records. The tests play the job.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, wrong
from integration.support.decided_batches import COUNTS, WINDOWS, Batch, audited, row, stateful, stateful_audit


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    return stateful_audit(kafka.bootstrap_servers, spark)


# The watermark is 5 seconds behind the newest event time. A batch drops windows that had ended before the watermark of
# the batch before it.
TIMED = [
    Batch([("a", 1), ("a", 2), ("a", 12)], watermark=0, output=0),
    Batch([("a", 3), ("a", 25)], watermark=7, output=0),
    Batch([("a", 4)], watermark=20, output=2),  # in time: the watermark before was 7
    Batch([("a", 5), ("a", 31)], watermark=20, output=0),  # 5 is late: the watermark before was 20
    Batch([], watermark=26, output=0),
]
ENDED = [row("0", 4), row("10", 1)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (ENDED, (0, 0, 0, 0)),
        ([row("0", 5), row("10", 1)], (1, 0, 1, 0)),
        (ENDED[:1], (1, 0, 0, 0)),
        ([*ENDED, ENDED[0]], (0, 1, 0, 0)),
        ([*ENDED, row("20", 1)], (0, 0, 1, 0)),
    ],
    ids=["right", "with-the-late-record", "lost", "twice", "not-ended"],
)
def test_windows_are_compared_once_they_have_ended(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int]
) -> None:
    stateful(pipeline, WINDOWS, "append")
    report = audited(pipeline, TIMED, output)
    assert wrong(report) == expected, report
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.HELD)
    assert any("1 record was late" in note for note in report.notes)


def test_windows_of_compacted_decisions_are_not_judged(pipeline: Pipeline) -> None:
    stateful(pipeline, WINDOWS, "append")
    report = audited(pipeline, TIMED, [row("0", 5), row("10", 1)], first=3)
    assert report.verdict is Verdict.UNPROVEN
    assert any("compacted" in doubt for doubt in report.doubts)


SUMS = "SELECT {} FROM source GROUP BY window(at, '10 seconds')"
START = "CAST(unix_timestamp(window.start) AS STRING) AS key, "
SUM = "sum(CAST(unix_timestamp(at) AS DOUBLE) / 10)"
OF_WINDOWS = (1.0, 1.2)  # of 1, 2, 3, 4 and of 12
JSON = ("to_json(struct({} AS sum, count(*) AS n))", '{{"sum":{},"n":4}}', '{{"sum":{},"n":1}}')
TEXT = ("CAST({} AS STRING)", "{}", "{}")


@pytest.mark.parametrize("form", [TEXT, JSON], ids=["text", "json"])
@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1, (0, 0, 0, 0)), (1 + 1e-12, (0, 0, 0, 0)), (1 + 1e-6, (1, 0, 1, 0)), (None, (1, 0, 0, 0))],
    ids=["right", "rounded", "altered", "lost"],
)
def test_sums_of_fractions_are_compared_within_a_tolerance(
    pipeline: Pipeline, form: tuple[str, str, str], factor: float | None, expected: tuple[int, int, int, int]
) -> None:
    """Control: a difference that no order of the records explains is a fault."""
    expression, *values = form
    stateful(pipeline, SUMS.format(f"{START}{expression.format(SUM)} AS value"), "append")
    output = [row("10", values[1].format(OF_WINDOWS[1]))]
    if factor:
        output.append(row("0", values[0].format(OF_WINDOWS[0] * factor)))
    report = audited(pipeline, TIMED, output)
    assert wrong(report) == expected, report
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.HELD)


def test_sums_of_fractions_that_are_not_in_the_output_do_not_matter(pipeline: Pipeline) -> None:
    inner = SUMS.format(f"{START}{SUM} AS sum, CAST(count(*) AS STRING) AS value")
    stateful(pipeline, f"SELECT key, value FROM ({inner})", "append")  # noqa: S608
    report = audited(pipeline, TIMED, [row("0", 4), row("10", 1)])
    assert (wrong(report), report.verdict) == ((0, 0, 0, 0), Verdict.HELD), report


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (f"{START}CAST(round({SUM}, 2) AS STRING) AS value", "a function or a condition of the transform uses them"),
        (f"CAST({SUM} AS STRING) AS key, 'x' AS value", "they are in a key"),
        (f"{START}CAST(sum(unix_timestamp(at) - 2.5D) AS STRING) AS value", "the numbers of a group cancel out"),
        (f"CAST({SUM} AS STRING) AS value", "some records of the output differ in them alone"),
    ],
    ids=["rounded", "key", "cancelling", "without-a-key"],
)
def test_other_uses_of_sums_of_fractions_are_not_judged(pipeline: Pipeline, columns: str, reason: str) -> None:
    stateful(pipeline, SUMS.format(columns), "append")
    report = audited(pipeline, TIMED, [row("0", 1.0)])
    assert report.verdict is Verdict.UNPROVEN
    assert any(reason in doubt for doubt in report.doubts), report.doubts


UNTIMED = [
    Batch([("a", 0), ("b", 0), ("a", 0)], watermark=0, output=2),
    Batch([("a", 0)], watermark=0, output=1),
]
COUNTED = [row("a", 2), row("b", 1), row("a", 3)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (COUNTED, (0, 0, 0, 0)),
        ([row("a", 2), row("b", 1), row("a", 4)], (1, 0, 1, 0)),
        ([row("b", 1), row("a", 3)], (1, 0, 0, 0)),
        ([row("a", 2), *COUNTED], (0, 1, 0, 0)),
        ([*COUNTED, row("c", 1)], (0, 1, 1, 0)),
    ],
    ids=["right", "altered", "earlier-lost", "earlier-twice", "foreign"],
)
def test_of_counts_the_last_one_of_each_key_is_compared_and_all_are_numbered(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int]
) -> None:
    stateful(pipeline, COUNTS, "update", timed=False)
    report = audited(pipeline, UNTIMED, output)
    assert wrong(report) == expected, report
    assert report.delivered == len(output)
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.HELD)


@pytest.mark.parametrize(
    ("accepted_loss", "output", "expected"),
    [
        ("0123456789ab", [row("old", 9), row("a", 7), *COUNTED], (0, 0, 0, 0)),
        ("0123456789ab", [row("old", 9), row("a", 7), row("b", 1)], (1, 0, 0, 0)),
        (None, [row("old", 9), row("a", 7), *COUNTED], (0, 2, 1, 0)),
    ],
    ids=["there", "lost", "control"],
)
def test_the_output_of_a_state_whose_loss_was_accepted_is_not_judged(
    pipeline: Pipeline, accepted_loss: str | None, output: list[Record], expected: tuple[int, int, int, int]
) -> None:
    """Control: without an accepted loss the records of the state before are faults."""
    stateful(pipeline, COUNTS, "update", timed=False)
    report = audited(pipeline, UNTIMED, output, accepted_loss=accepted_loss)
    assert wrong(report) == expected, report
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.UNPROVEN)
    assert any("was lost and began empty" in doubt for doubt in report.doubts) is (accepted_loss is not None)


def test_positions_of_another_batch_than_the_last_decision_end_the_audit(pipeline: Pipeline) -> None:
    stateful(pipeline, COUNTS, "update", timed=False)
    audited(pipeline, UNTIMED, COUNTED)
    pipeline.passed({0: 1})
    with pytest.raises(JobError) as raised:
        pipeline.audit()
    assert raised.value.reason is Reason.STATE_LOST


DISTINCT = "SELECT name AS key, 'seen' AS value FROM (SELECT DISTINCT name FROM source)"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([row("a", "seen"), row("b", "seen")], (0, 0, 0, 0)),
        ([row("a", "seen")], (1, 0, 0, 0)),
        ([row("a", "seen"), row("b", "seen"), row("c", "seen")], (0, 0, 1, 0)),
    ],
    ids=["right", "lost", "foreign"],
)
def test_of_each_key_one_record_is_required(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int]
) -> None:
    stateful(pipeline, DISTINCT, "update", timed=False)
    report = audited(pipeline, UNTIMED, output)
    assert wrong(report) == expected, report


# Orders oa, ob … and their payments pa, pb ….
PAID_ORDERS = """
    SELECT substr(o.name, 2) AS key, CAST(unix_timestamp(p.at) AS STRING) AS value FROM source o JOIN source p
    ON substr(o.name, 2) = substr(p.name, 2) AND p.at BETWEEN o.at AND o.at + INTERVAL 10 SECONDS
    WHERE o.name LIKE 'o%' AND p.name LIKE 'p%'
"""
PAID = [
    Batch([("oa", 1), ("pa", 2), ("ob", 12)], watermark=0, output=1),
    Batch([("pb", 14), ("oc", 30)], watermark=7, output=1),
    Batch([("pb", 13)], watermark=25, output=1),  # in time: the watermark before was 7
    Batch([("pb", 15), ("pc", 41)], watermark=25, output=0),  # 15 is late, and 41 is too long after the order
]
JOINED = [row("a", 2), row("b", 14), row("b", 13)]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (JOINED, (0, 0, 0, 0)),
        (JOINED[1:], (1, 0, 0, 0)),
        ([*JOINED, JOINED[0]], (0, 1, 0, 0)),
        ([row("a", 3), *JOINED[1:]], (1, 0, 1, 0)),
        ([*JOINED, row("b", 15)], (0, 0, 1, 0)),
        ([*JOINED, row("c", 41)], (0, 0, 1, 0)),
    ],
    ids=["right", "lost", "twice", "altered", "with-the-late-record", "outside-the-range"],
)
def test_pairs_of_a_join_are_compared(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int]
) -> None:
    stateful(pipeline, PAID_ORDERS, "append")
    report = audited(pipeline, PAID, output)
    assert wrong(report) == expected, report
    assert report.verdict is (Verdict.BROKEN if any(expected) else Verdict.HELD)
    assert any("1 record was late: the watermark had passed the event time" in note for note in report.notes)


def test_pairs_of_compacted_decisions_are_not_judged(pipeline: Pipeline) -> None:
    stateful(pipeline, PAID_ORDERS, "append")
    report = audited(pipeline, PAID, [*JOINED, row("b", 15)], first=3)
    assert report.verdict is Verdict.UNPROVEN
    assert any("records from before" in doubt for doubt in report.doubts)
