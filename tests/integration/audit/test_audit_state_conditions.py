"""The audit judges groups in tables whose rows depend on a condition (HAVING) or on the order of the records.

A job writes them; psql and delta-rs damage them. test_audit_state_groups.py has the same in topics, without a job. See
docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.reports import Verdict
from integration.support.pipelines import running
from integration.support.postgres import Database
from integration.support.stateful_pipelines import OF_GROUP, PARTITIONS
from integration.support.stateful_tables import StatefulTable, stateful_table
from integration.support.stateful_windows import feed_seconds, timed_windows
from waiting import WAIT, wait_until

Judged = tuple[Verdict, int, int, int]  # lost, duplicated, unexpected
HELD: Judged = (Verdict.HELD, 0, 0, 0)
UNPROVEN: Judged = (Verdict.UNPROVEN, 0, 0, 0)


def broken(lost: int, duplicated: int, unexpected: int) -> Judged:
    return Verdict.BROKEN, lost, duplicated, unexpected


def judged(report: Report) -> Judged:
    return report.verdict, report.lost, report.duplicated, report.unexpected


# Groups of 100 records, by key and number; the last one of each key has 50.
GROUPS = """
    SELECT name AS key, CAST({}(number, {}) AS STRING) AS value, count(*) AS n
    FROM (
        SELECT concat(CAST(key AS STRING), '/', CAST(split(CAST(value AS STRING), ':')[1] AS INT) DIV 100) AS name,
               CAST(split(CAST(value AS STRING), ':')[1] AS INT) AS number
        FROM source
    )
    GROUP BY name HAVING count(*) {}
"""


def delivered(pipeline: StatefulTable, *of_transform: str) -> None:
    """A driver delivers 550 records of each partition into the table, with a further column for the number."""
    pipeline.database.sql("ALTER TABLE counts ADD n bigint")
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=GROUPS.format(*of_transform)))
    pipeline.feed(OF_GROUP // 2)
    pipeline.drained()


def test_groups_in_a_table_are_judged_if_their_condition_stays_true(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """max_by() of a number by itself has one value to choose from."""
    with stateful_table(kafka, database, tmp_path, f"audited-{uuid.uuid4().hex[:8]}") as pipeline:
        delivered(pipeline, "max_by", "number", "> 60")
    report = audit(spark, pipeline.spec)
    assert judged(report) == HELD, report
    assert report.expected == report.delivered == 5 * PARTITIONS
    for damage, expected in [
        ("UPDATE counts SET value = '98' WHERE key = 'p0/0'", broken(1, 0, 1)),
        ("UPDATE counts SET value = '99', n = 101 WHERE key = 'p0/0'", broken(1, 0, 1)),
        ("DELETE FROM counts WHERE key = 'p0/0'", broken(1, 0, 0)),
        ("INSERT INTO counts VALUES ('p9/0', '99', 100)", broken(1, 0, 1)),
        ("UPDATE counts SET key = 'p0/0' WHERE key = 'p9/0'", HELD),
        # Its condition was never true.
        ("INSERT INTO counts VALUES ('p0/5', '549', 50)", (Verdict.UNPROVEN, 0, 0, 0)),
    ]:
        database.sql(damage)
        assert judged(audit(spark, pipeline.spec)) == expected, damage


def test_what_a_table_has_of_dropped_groups_and_of_the_first_record_is_not_judged(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """A group is dropped when it has 100 records. The table has it as it was at the end of an earlier batch."""
    with stateful_table(kafka, database, tmp_path, f"audited-{uuid.uuid4().hex[:8]}") as pipeline:
        delivered(pipeline, "any_value", "false", "< 100")
    dropped = [key for (key,) in database.sql("SELECT key FROM counts WHERE key NOT LIKE '%/5' ORDER BY key")]
    assert dropped
    report = audit(spark, pipeline.spec)
    assert judged(report) == UNPROVEN, report
    assert any("does not judge value, and compares the other columns" in doubt for doubt in report.doubts)
    assert any("HAVING" in doubt for doubt in report.doubts)
    assert report.unjudged == len(dropped)
    for damage, expected in [
        ("UPDATE counts SET value = 'any' WHERE key = 'p0/5'", UNPROVEN),
        (f"UPDATE counts SET n = 1 WHERE key = '{dropped[0]}'", UNPROVEN),  # noqa: S608
        ("UPDATE counts SET n = 51 WHERE key = 'p0/5'", broken(1, 0, 1)),
        ("DELETE FROM counts WHERE key = 'p0/5'", broken(1, 0, 0)),
        ("INSERT INTO counts VALUES ('p9/5', '500', 50)", broken(1, 0, 1)),
        ("UPDATE counts SET key = 'p0/5' WHERE key = 'p9/5'", UNPROVEN),
    ]:
        database.sql(damage)
        assert judged(audit(spark, pipeline.spec)) == expected, damage


# The window from 10 k seconds on has 10 + k records, so that the first two are dropped.
WINDOWS = """
    SELECT CAST(unix_timestamp(window.start) AS STRING) AS key, count(*) AS n, {} AS x
    FROM source GROUP BY window(at, '10 seconds') HAVING count(*) > 11
"""
SECONDS = [second for at in range(80) for second in [at] * (1 + at // 10 * (at % 10 == 5))]


@pytest.mark.parametrize(
    ("of_time", "is_judged"),
    [("max_by(unix_timestamp(at), at)", True), ("first(unix_timestamp(at))", False)],
    ids=["max_by", "first"],
)
def test_windows_with_a_condition_in_a_delta_table_are_judged(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession, of_time: str, is_judged: bool
) -> None:
    undamaged, altered = (HELD, broken(1, 0, 1)) if is_judged else (UNPROVEN, UNPROVEN)
    table = tmp_path / "table"
    sink = {"delta": {"path": str(table), "createTable": True}}
    job = timed_windows(kafka.bootstrap_servers, f"lake-{uuid.uuid4().hex[:8]}", tmp_path, sink)
    job = replace(job, transform=replace(job.transform, sql=WINDOWS.format(of_time)))
    _delivered(job, tmp_path, lambda: DeltaTable(table).to_pyarrow_table().num_rows)
    report = audit(spark, job)
    assert judged(report) == undamaged, report
    assert report.expected == report.delivered == 5

    right = DeltaTable(table).version()
    rows = DeltaTable(table).to_pyarrow_table()
    [of_20] = [number for number, key in enumerate(rows["key"].to_pylist()) if key == "20"]
    row = rows.slice(of_20, 1)
    of_dropped = row.set_column(0, rows.schema.field("key"), [["0"]])
    damages: list[tuple[Callable[[], object], Judged]] = [
        (lambda: DeltaTable(table).delete("key = '20'"), broken(1, 0, 0)),
        (lambda: write_deltalake(table, row, mode="append"), broken(0, 1, 0)),
        (lambda: write_deltalake(table, of_dropped, mode="append"), broken(0, 0, 1)),
        (lambda: DeltaTable(table).update({"n": "n + 1"}, predicate="key = '20'"), broken(1, 0, 1)),
        (lambda: DeltaTable(table).update({"x": "x + 1"}, predicate="key = '20'"), altered),
    ]
    for damage, expected in damages:
        damage()
        assert judged(audit(spark, job)) == expected
        DeltaTable(table).restore(right)
    assert judged(audit(spark, job)) == undamaged


def _delivered(job: JobSpec, directory: Path, rows: Callable[[], int]) -> None:
    """A driver delivers the windows up to 70, and is drained."""
    feed_seconds(job, SECONDS)
    with running(job, directory / "1") as driver:
        driver.until_position(1, len(SECONDS), WAIT)
        wait_until(lambda: rows() >= 5, "the windows up to 70 are in the table")
        driver.job.drain()
        driver.job.wait(WAIT)
