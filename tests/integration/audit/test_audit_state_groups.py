"""The audit judges groups whose rows depend on more than the records: their order, a condition, their partition.

The tests play the job. See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Format, Guarantee, KafkaSink
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, wrong
from integration.support.decided_batches import COUNTS, Batch, audited, row, stateful, stateful_audit

HELD, BROKEN, UNPROVEN = Verdict.HELD, Verdict.BROKEN, Verdict.UNPROVEN
RIGHT = (0, 0, 0, 0)  # as wrong() has it: lost, duplicated, unexpected, out of order


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, spark: SparkSession) -> Pipeline:
    return stateful_audit(kafka.bootstrap_servers, spark)


def in_turn(pipeline: Pipeline, batches: Sequence[Batch], *output: Record) -> Report:
    """The report on these records, each of which was written some time after the one before."""
    for record in output[:-1]:
        pipeline.produce("out", [record], "commit")
    return audited(pipeline, batches, output[-1:])


# "d" belongs to partition 1 of 2, and to 0 before the second one was added.
MOVED = [Batch([("d", 0)], watermark=0, output=1), Batch([("d", 0)], watermark=0, output=1)]


@pytest.mark.parametrize(
    ("counts", "expected", "verdict"),
    [((1, 2), RIGHT, HELD), ((1, 3), (1, 0, 1, 0), BROKEN), ((2, 1), (1, 0, 1, 0), BROKEN)],
    ids=["right", "altered", "older-last"],
)
def test_a_key_that_moved_to_another_partition_has_one_last_record(
    pipeline: Pipeline, counts: tuple[int, int], expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, COUNTS, "update", timed=False)
    first, second = (replace(row("d", count), partition=partition) for partition, count in enumerate(counts))
    report = in_turn(pipeline, MOVED, first, second)
    assert (wrong(report), report.verdict) == (expected, verdict), report


@pytest.mark.parametrize(
    ("counts", "expected", "verdict"),
    [((1, 2, 3), RIGHT, HELD), ((1, 3, 2), (1, 0, 1, 0), BROKEN), ((1, 2, 4), (1, 0, 1, 0), BROKEN)],
    ids=["right", "older-last", "altered"],
)
def test_the_group_of_null_has_one_last_record_in_whatever_partition(
    pipeline: Pipeline, counts: tuple[int, ...], expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, COUNTS, "update", timed=False)
    batches = [Batch([(None, 0)], watermark=0, output=1)] * 3
    records = [Record(None, str(count).encode(), partition) for partition, count in zip((1, 0, 1), counts, strict=True)]
    report = in_turn(pipeline, batches, *records)
    assert (wrong(report), report.verdict) == (expected, verdict), report


def test_null_is_one_of_the_different_values(pipeline: Pipeline) -> None:
    distinct = "SELECT name AS key, 'seen' AS value FROM (SELECT DISTINCT name FROM source)"
    stateful(pipeline, distinct, "update", timed=False)
    batches = [Batch([("a", 0), (None, 0)], watermark=0, output=2), Batch([(None, 0)], watermark=0, output=0)]
    report = audited(pipeline, batches, [row("a", "seen"), Record(None, b"seen", 1)])
    assert (wrong(report), report.verdict) == (RIGHT, HELD), report


# Once a has three records, its group is dropped.
FEW = f"{COUNTS} HAVING count(*) < 3"
GROWING = [
    Batch([("a", 0), ("b", 0), ("a", 0)], watermark=0, output=2),
    Batch([("a", 0), ("b", 0)], watermark=0, output=1),
]
WRITTEN = [row("a", 2), row("b", 1), row("b", 2)]


@pytest.mark.parametrize(
    ("output", "expected", "verdict"),
    [
        (WRITTEN, RIGHT, UNPROVEN),
        ([*WRITTEN[:2], row("b", 3)], (1, 0, 1, 0), BROKEN),
        ([row("a", 2), row("a", 1)], (2, 0, 0, 0), BROKEN),
        ([*WRITTEN[1:], row("c", 1)], (0, 0, 1, 0), BROKEN),
    ],
    ids=["right", "altered", "lost", "foreign"],
)
def test_what_a_condition_has_left_of_groups_that_it_drops_is_not_judged(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, FEW, "update", timed=False)
    report = audited(pipeline, GROWING, output)
    assert (wrong(report), report.verdict) == (expected, verdict), report
    assert any("HAVING" in doubt for doubt in report.doubts) is (row("a", 2) in output)


def test_a_condition_that_stays_true_is_judged(pipeline: Pipeline) -> None:
    stateful(pipeline, f"{COUNTS} HAVING count(*) > 1", "update", timed=False)
    report = audited(pipeline, GROWING, [row("a", 2), row("a", 3), row("b", 2)])
    assert (wrong(report), report.verdict) == (RIGHT, HELD), report


def test_at_most_once_a_group_that_a_condition_drops_is_no_foreign_one(pipeline: Pipeline) -> None:
    stateful(pipeline, FEW, "update", timed=False)
    pipeline.job = replace(pipeline.job, guarantee=Guarantee.AT_MOST_ONCE)
    report = audited(pipeline, GROWING, WRITTEN)
    assert (wrong(report), report.verdict) == (RIGHT, HELD), report


AVERAGES = "SELECT name AS key, {} AS value FROM source GROUP BY name"
TIMES = [Batch([("a", 1), ("a", 2), ("a", 6)], watermark=0, output=1)]  # their average is 3.0


@pytest.mark.parametrize(
    ("select", "value", "expected", "verdict"),
    [
        ("CAST(avg(unix_timestamp(at) + 9007199254740992) AS STRING)", "9.007199254740993E15", RIGHT, HELD),
        ("CAST(avg(unix_timestamp(at) + 9007199254740992) AS STRING)", "9.007199254740999E15", RIGHT, HELD),
        ("CAST(avg(unix_timestamp(at) + 9007199254740992) AS STRING)", "9.0072E15", (1, 0, 1, 0), BROKEN),
        ("concat(CAST(avg(unix_timestamp(at) + 9007199254740992) AS STRING), ' s')", "1 s", RIGHT, UNPROVEN),
        ("concat(CAST(avg(unix_timestamp(at)) AS STRING), ' s')", "3.0 s", RIGHT, HELD),
        ("concat(CAST(avg(unix_timestamp(at)) AS STRING), ' s')", "3.1 s", (1, 0, 1, 0), BROKEN),
    ],
)
def test_averages_of_large_whole_numbers_are_compared_within_a_tolerance(
    pipeline: Pipeline, select: str, value: str, expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    """Of small ones they are exact."""
    stateful(pipeline, AVERAGES.format(select), "update", timed=False)
    report = audited(pipeline, TIMES, [row("a", value)])
    assert (wrong(report), report.verdict) == (expected, verdict), report


IN_JSON = "SELECT name AS key, count(*) AS n, {} AS x FROM source GROUP BY name"
ARRIVED = [Batch([("a", 1), ("a", 2), ("b", 3), ("a", 1)], watermark=0, output=2)]


@pytest.mark.parametrize(
    "function",
    [
        "first(unix_timestamp(at))",
        "last(unix_timestamp(at))",
        "any_value(unix_timestamp(at))",
        "concat_ws(',', collect_list(name))",
        "max_by(unix_timestamp(at), name)",
        "mode(unix_timestamp(at))",
    ],
)
@pytest.mark.parametrize(
    ("n", "expected", "verdict"), [(3, RIGHT, UNPROVEN), (4, (1, 0, 1, 0), BROKEN)], ids=["right", "altered"]
)
def test_beside_functions_that_depend_on_the_order_other_columns_are_judged(
    pipeline: Pipeline, function: str, n: int, expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, IN_JSON.format(function), "update", timed=False)
    pipeline.job = replace(pipeline.job, sink=replace(pipeline.job.sink_of(KafkaSink), format=Format.JSON))
    report = audited(pipeline, ARRIVED, [row("a", f'{{"n":{n},"x":"any"}}'), row("b", '{"n":1,"x":"any"}')])
    assert (wrong(report), report.verdict) == (expected, verdict), report
    assert any("does not judge x, and compares the other columns" in doubt for doubt in report.doubts)


@pytest.mark.parametrize(
    ("x", "expected", "verdict"), [(2, RIGHT, HELD), (1, (1, 0, 1, 0), BROKEN)], ids=["right", "altered"]
)
def test_the_value_at_the_latest_time_is_judged_if_it_is_the_only_one(
    pipeline: Pipeline, x: int, expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, IN_JSON.format("max_by(unix_timestamp(at), at)"), "update", timed=False)
    pipeline.job = replace(pipeline.job, sink=replace(pipeline.job.sink_of(KafkaSink), format=Format.JSON))
    report = audited(pipeline, ARRIVED, [row("a", f'{{"n":3,"x":{x}}}'), row("b", '{"n":1,"x":3}')])
    assert (wrong(report), report.verdict) == (expected, verdict), report


@pytest.mark.parametrize(
    ("output", "expected", "verdict"),
    [([row("a", 7), row("b", 7)], RIGHT, UNPROVEN), ([row("a", 7), row("c", 7)], (1, 0, 1, 0), BROKEN)],
    ids=["right", "lost"],
)
def test_of_a_value_that_depends_on_the_order_the_keys_are_judged(
    pipeline: Pipeline, output: list[Record], expected: tuple[int, int, int, int], verdict: Verdict
) -> None:
    stateful(pipeline, AVERAGES.format("CAST(first(unix_timestamp(at)) AS STRING)"), "update", timed=False)
    report = audited(pipeline, ARRIVED, output)
    assert (wrong(report), report.verdict) == (expected, verdict), report


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(first(at) AS STRING) AS key, name AS value FROM source GROUP BY name",
        "SELECT name AS key, 'x' AS value FROM source GROUP BY name HAVING first(at) IS NULL",
        "SELECT name AS key, CAST(count(*) AS STRING) AS value, rand() AS x FROM source GROUP BY name",
    ],
    ids=["key", "condition", "random"],
)
def test_keys_and_conditions_that_depend_on_the_order_and_random_numbers_are_not_judged(
    pipeline: Pipeline, sql: str
) -> None:
    stateful(pipeline, sql, "update", timed=False)
    if "rand()" in sql:
        pipeline.job = replace(pipeline.job, sink=replace(pipeline.job.sink_of(KafkaSink), format=Format.JSON))
    report = audited(pipeline, ARRIVED, [row("z", 7)])
    assert (wrong(report), report.verdict) == (RIGHT, UNPROVEN), report
