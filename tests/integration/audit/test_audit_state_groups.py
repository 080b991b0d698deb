"""The audit judges groups whose key is in several partitions.

The tests play the job. See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit_report import Report
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline, Record, wrong
from integration.support.decided_batches import COUNTS, Batch, audited, row, stateful, stateful_audit

HELD, BROKEN = Verdict.HELD, Verdict.BROKEN
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
