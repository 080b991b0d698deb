"""The audit judges outer and semi joins of stateful pipelines. The tests play the job.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, wrong
from integration.support.decided_batches import Batch, audited, row, stateful, stateful_audit


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    return stateful_audit(kafka.bootstrap_servers, spark)


def sql(kind: str, bound: str = "<=", more: str = "") -> str:
    """A join of orders oa, ob … with their payments pa, pb … of the 10 seconds after them."""
    right = "" if kind == "LEFT SEMI" else ", nvl(p.name, '-')"
    return f"""
        SELECT 'a' AS key, concat_ws(' ', nvl(o.name, '-'){right}) AS value
        FROM (SELECT * FROM source WHERE name LIKE 'o%') o {kind} JOIN (SELECT * FROM source WHERE name LIKE 'p%') p
        ON substr(o.name, 2) = substr(p.name, 2) AND substr(o.name, 2) IS NOT NULL
        AND p.at >= o.at AND p.at {bound} o.at + INTERVAL 10 SECONDS {more}
    """  # noqa: S608


# The watermark is 5 seconds behind the newest event time, and was 25 when the last batch ended.
BATCHES = [
    Batch([("oa", 1), ("pa", 2), ("ob", 3), ("oc", 15), ("pe", 4), ("of", 15)], watermark=0, output=1),
    Batch([("od", 30)], watermark=10, output=1),
    Batch([("pc", 16), ("pg", 25)], watermark=25, output=2),  # in time: the watermark before was 10
    Batch([("pb", 12), ("oh", 24)], watermark=25, output=0),  # both are late, and 12 would have matched
]
PAIRS, ORDER, PAYMENT = ["oa pa", "oc pc"], "ob -", "- pe"
WRITTEN = {
    "LEFT": [*PAIRS, ORDER],
    "RIGHT": [*PAIRS, PAYMENT],
    "FULL": [*PAIRS, ORDER, PAYMENT],
    "LEFT SEMI": ["oa", "oc"],
}


def rows(values: list[str]) -> list[Record]:
    return [row("a", value) for value in values]


@pytest.mark.parametrize("kind", WRITTEN)
def test_rows_without_a_match_are_required_once_their_range_has_ended(pipeline: Pipeline, kind: str) -> None:
    stateful(pipeline, sql(kind), "append")
    report = audited(pipeline, BATCHES, rows(WRITTEN[kind]))
    assert wrong(report) == (0, 0, 0, 0), report
    assert report.verdict is Verdict.HELD, report
    assert any("2 records were late" in note for note in report.notes)


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("LEFT", PAIRS, (1, 0, 0, 0)),
        ("LEFT", [*PAIRS, ORDER, ORDER], (0, 1, 0, 0)),
        ("LEFT", [*PAIRS, ORDER, "oa -"], (0, 0, 1, 0)),
        ("LEFT", [*PAIRS, "ob pb"], (1, 0, 1, 0)),
        ("LEFT", [*PAIRS, ORDER, "of -"], (0, 0, 1, 0)),
        ("LEFT", [*PAIRS, ORDER, "oh -"], (0, 0, 1, 0)),
        ("RIGHT", [*PAIRS, PAYMENT, "- pg"], (0, 0, 1, 0)),
        ("FULL", [*PAIRS, ORDER], (1, 0, 0, 0)),
        ("FULL", [*PAIRS, PAYMENT], (1, 0, 0, 0)),
        ("LEFT SEMI", ["oa"], (1, 0, 0, 0)),
        ("LEFT SEMI", ["oa", "oa", "oc"], (0, 1, 0, 0)),
        ("LEFT SEMI", ["oa", "ob", "oc"], (0, 0, 1, 0)),
    ],
    ids=[
        "lost", "twice", "although-matched", "with-the-late-match", "before-its-end", "of-a-late-record",
        "payment-before-its-end", "payment-lost", "order-lost", "semi-lost", "semi-twice", "semi-without-a-match",
    ],
)  # fmt: skip
def test_a_wrong_row_is_reported(
    pipeline: Pipeline, kind: str, values: list[str], expected: tuple[int, int, int, int]
) -> None:
    stateful(pipeline, sql(kind), "append")
    report = audited(pipeline, BATCHES, rows(values))
    assert wrong(report) == expected, report
    assert report.verdict is Verdict.BROKEN


@pytest.mark.parametrize(
    ("bound", "more", "written"),
    [
        ("<", "", ["of -"]),  # a payment of second 25 would not match, and the watermark is 25
        ("<=", "AND o.name <> 'od'", ["od -"]),  # no payment matches it, so it is written at once
        ("<=", "AND p.name <> 'pc'", []),  # says nothing of orders, and the range of oc has not ended
    ],
    ids=["before-the-end", "of-the-order-alone", "of-the-payment-alone"],
)
def test_the_condition_says_when_a_row_without_a_match_is_written(
    pipeline: Pipeline, bound: str, more: str, written: list[str]
) -> None:
    stateful(pipeline, sql("LEFT", bound, more), "append")
    pairs = [pair for pair in PAIRS if "pc" not in more or "pc" not in pair]
    report = audited(pipeline, BATCHES, rows([*pairs, ORDER, *written]))
    assert (report.verdict, *wrong(report)) == (Verdict.HELD, 0, 0, 0, 0), report


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_an_outer_join_of_common_table_expressions_is_judged(pipeline: Pipeline, kind: str) -> None:
    of_tables = f"""
        WITH orders AS (SELECT name, at FROM source WHERE name LIKE 'o%'),
            payments AS (SELECT name, at AS paid FROM source WHERE name LIKE 'p%'),
            joined AS (
                SELECT o.name AS o, p.name AS p FROM orders o {kind} JOIN payments p
                ON substr(o.name, 2) = substr(p.name, 2) AND substr(o.name, 2) IS NOT NULL
                AND paid BETWEEN at AND at + INTERVAL 10 SECONDS
            )
        SELECT 'a' AS key, concat_ws(' ', nvl(o, '-'), nvl(p, '-')) AS value FROM joined
    """  # noqa: S608
    stateful(pipeline, of_tables, "append")
    report = audited(pipeline, BATCHES, rows(WRITTEN[kind]))
    assert (report.verdict, *wrong(report)) == (Verdict.HELD, 0, 0, 0, 0), report


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_sides_with_columns_that_the_optimizer_renames_are_judged(pipeline: Pipeline, kind: str) -> None:
    """No payment matches od, so it is written at once."""
    sides = sql(kind, more="AND o.name <> 'od'").replace(
        "SELECT * FROM", "SELECT CAST(name AS STRING) AS name, at FROM"
    )
    stateful(pipeline, sides, "append")
    report = audited(pipeline, BATCHES, rows([*WRITTEN[kind], "od -"]))
    assert (report.verdict, *wrong(report)) == (Verdict.HELD, 0, 0, 0, 0), report


@pytest.mark.parametrize("kind", ["LEFT", "FULL"])
def test_one_common_table_expression_for_both_sides_is_judged(pipeline: Pipeline, kind: str) -> None:
    both = sql(kind, more="AND o.name <> 'od'").replace("FROM source", "FROM records")
    stateful(pipeline, f"WITH records AS (SELECT name, at FROM source) {both}", "append")  # noqa: S608
    report = audited(pipeline, BATCHES, rows([*WRITTEN[kind], "od -"]))
    assert (report.verdict, *wrong(report)) == (Verdict.HELD, 0, 0, 0, 0), report


def test_orders_without_a_payment_alone(pipeline: Pipeline) -> None:
    stateful(pipeline, sql("LEFT") + " WHERE p.name IS NULL", "append")
    report = audited(pipeline, BATCHES, rows([ORDER]))
    assert (report.verdict, *wrong(report)) == (Verdict.HELD, 0, 0, 0, 0), report


def test_rows_of_compacted_decisions_are_not_judged(pipeline: Pipeline) -> None:
    stateful(pipeline, sql("LEFT"), "append")
    report = audited(pipeline, BATCHES, rows([*PAIRS, "ob pb"]), first=3)
    assert report.verdict is Verdict.UNPROVEN
    assert any("records from before" in doubt for doubt in report.doubts)


def test_a_range_that_the_audit_cannot_compute_is_a_doubt(pipeline: Pipeline) -> None:
    seconds = "AND CAST(p.at AS DOUBLE) <= CAST(o.at AS DOUBLE) + 10 AND CAST(p.at AS DOUBLE) >= CAST(o.at AS DOUBLE)"
    stateful(
        pipeline, sql("LEFT").replace("AND p.at >= o.at AND p.at <= o.at + INTERVAL 10 SECONDS", seconds), "append"
    )
    report = audited(pipeline, BATCHES, rows(WRITTEN["LEFT"]))
    assert report.verdict is Verdict.UNPROVEN
    assert any("range of the outer join" in doubt for doubt in report.doubts)
