"""Windows, joins and deduplication that append to a table of PostgreSQL, whose drivers are killed at each step.

What is in the table is compared with the input by psql, and by the audit, which then has to report each kind of damage.
See docs/stateful.md#into-postgresql.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.reports import Verdict
from integration.support.driver_lives import DriverLives
from integration.support.joined_pipelines import Event, JoinedPipeline, joined_pipeline
from integration.support.pipelines import create_topics, document, job_of, running
from integration.support.postgres import Database
from integration.support.stateful_windows import feed_seconds, timed_windows
from sql_texts import JOIN, joined_sides
from waiting import WAIT, wait_until

TABLE = "CREATE TABLE counts (key text, value text)"
NOT_NULL = "o.id = p.order_id AND o.id IS NOT NULL AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR"
# Ten records of each partition have one key, which both partitions have.
DISTINCT = """
from pyspark.sql import functions as F


def keys(source):
    number = F.split(F.col("value").cast("string"), ":")[1].cast("int")
    keys = source.select(F.floor(number / 10).cast("string").alias("key"), F.lit("first").alias("value"))
    return keys.dropDuplicates(["key"])
"""
# What is done to the table, and how many rows are then lost, duplicated and unexpected.
LOST = ("DELETE FROM counts WHERE key = '0'", (1, 0, 0))
TWICE = ("INSERT INTO counts SELECT * FROM counts WHERE key = '0'", (0, 1, 0))
FOREIGN = ("INSERT INTO counts VALUES ('no such key', '10')", (0, 0, 1))
ALTERED = ("UPDATE counts SET value = 'other' WHERE key = '0'", (1, 0, 1))


@pytest.fixture
def table(database: Database) -> Database:
    database.sql(TABLE)
    return database


def faults(report: Report) -> tuple[int, int, int]:
    """Lost, duplicated and unexpected rows, of a report that judges them."""
    result = (report.lost, report.duplicated, report.unexpected)
    assert report.verdict is (Verdict.BROKEN if any(result) else Verdict.HELD), report
    return result


def assert_damage_is_reported(spark: SparkSession, job: JobSpec, table: Database) -> None:
    """Each kind of damage, which is then repaired."""
    table.sql("CREATE TABLE copy AS SELECT * FROM counts")
    for damage, expected in (LOST, TWICE, FOREIGN, ALTERED):
        table.sql(damage)
        assert faults(audit(spark, job)) == expected, damage
        table.sql("TRUNCATE counts; INSERT INTO counts SELECT * FROM copy")
    assert faults(audit(spark, job)) == (0, 0, 0)


@pytest.mark.parametrize(
    "points",
    [
        ("evaluated", "after-commit"),  # state is stored and nothing is decided; before the driver knows the outcome
        ("before-commit", "batch-end"),  # rows and decision are in an open transaction; before Spark's log of commits
    ],
    ids=["decided", "batch"],
)
def test_windows_are_appended_once_over_kills(
    kafka: EmbeddedKafka, table: Database, tmp_path: Path, spark: SparkSession, points: tuple[str, str]
) -> None:
    job = timed_windows(
        kafka.bootstrap_servers,
        f"appended-{uuid.uuid4().hex[:8]}",
        tmp_path,
        table.spec("counts", mode="append"),
        table.secrets,
    )
    seconds = offsets = 60
    feed_seconds(job, range(seconds))
    for point in points:
        with running(job, tmp_path / point) as killed:
            killed.until_position(1, offsets, WAIT)
            hit = killed.arm(point)
            feed_seconds(job, [1, 2, *range(seconds, seconds + 30)])  # the first two are late
            killed.arrived(hit)
            killed.job.kill()
        seconds, offsets = seconds + 30, offsets + 32

    def rows() -> list[tuple[int, int]]:
        return sorted((int(key), int(value)) for key, value in table.sql("SELECT key, value FROM counts"))

    ended = [(begin, 10) for begin in range(0, 110, 10)]  # the newest record is of 119, the watermark at 114
    with running(job, tmp_path / "last") as last:
        last.until_position(1, offsets, WAIT)
        wait_until(lambda: len(rows()) >= len(ended), "the windows that have ended are in the table")
        last.job.drain()
        assert last.job.wait(WAIT) == 0, last.job.failure()
    assert rows() == ended
    report = audit(spark, job)
    assert faults(report) == (0, 0, 0)
    assert report.expected == report.delivered == len(ended)
    assert any("4 records were late" in note for note in report.notes), report.notes
    assert_damage_is_reported(spark, job, table)


def joined_table(kafka: EmbeddedKafka, table: Database, directory: Path, sql: str) -> JoinedPipeline:
    """A pipeline that joins into the table."""
    pipeline = joined_pipeline(
        kafka.bootstrap_servers,
        f"joined-{uuid.uuid4().hex[:8]}",
        directory,
        sql,
        of_sink=table.spec("counts", mode="append"),
        secrets=str(table.secrets),
    )
    pipeline.values = lambda: [value for (value,) in table.sql("SELECT value FROM counts")]
    return pipeline


@pytest.mark.parametrize(
    "points", [("evaluated", "after-commit"), ("before-commit", "batch-end")], ids=["decided", "batch"]
)
def test_pairs_are_appended_once_over_kills(
    kafka: EmbeddedKafka, table: Database, tmp_path: Path, spark: SparkSession, points: tuple[str, str]
) -> None:
    pipeline = joined_table(kafka, table, tmp_path, JOIN)
    pipeline.feed(*(Event(n, 1_000 + n) for n in range(20)), *(Event(n, 1_100 + n, pays=True) for n in range(5)))
    pipeline.killed_at(points[0], *(Event(n, 1_200 + n, pays=True) for n in range(5, 15)))
    pipeline.killed_at(points[1], *(Event(n, 1_300 + n, pays=True) for n in range(10, 20)))
    pipeline.drained()
    assert pipeline.output() == pipeline.pairs()
    assert len(pipeline.output()) == 25
    assert faults(audit(spark, pipeline.job)) == (0, 0, 0)
    assert_damage_is_reported(spark, pipeline.job, table)


def test_rows_without_a_match_are_appended_once_over_kills(
    kafka: EmbeddedKafka, table: Database, tmp_path: Path, spark: SparkSession
) -> None:
    pipeline = joined_table(kafka, table, tmp_path, joined_sides("LEFT", NOT_NULL))
    pipeline.feed(*(Event(n, 1_000 + n) for n in range(10)), *(Event(n, 1_100 + n, pays=True) for n in range(5, 15)))
    for number, point in enumerate(("before-commit", "after-commit"), 1):
        at, first = 5_000 * number, 20 * number
        pipeline.killed_at(
            point,
            *(Event(n, at + n) for n in range(first, first + 10)),
            *(Event(n, at + 100 + n, pays=True) for n in range(first + 5, first + 15)),
        )
    late = Event(200, 20_500, pays=True)
    with pipeline.life() as driver:
        for event in (Event(200, 20_000), Event(201, 40_000), Event(202, 40_100), late, Event(203, 50_000)):
            pipeline.feed(event)
            pipeline.caught_up(driver)
        written = pipeline.rows("LEFT", 49_400, [late])
        wait_until(lambda: len(pipeline.output()) >= len(written), "the rows without a match are written")
        driver.job.drain()
        assert driver.job.wait(WAIT) == 0, driver.job.failure()
    assert pipeline.output() == written
    assert [row for row in written if row.startswith("order-200-")] == ["order-200-20000 none"]
    report = audit(spark, pipeline.job)
    assert faults(report) == (0, 0, 0)
    assert any("1 record was late" in note for note in report.notes), report.notes
    assert_damage_is_reported(spark, pipeline.job, table)


def test_each_key_is_appended_once_over_kills(
    kafka: EmbeddedKafka, table: Database, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "distinct_keys.py").write_text(DISTINCT)
    monkeypatch.syspath_prepend(tmp_path)  # of the audit
    servers, source = kafka.bootstrap_servers, f"distinct-{uuid.uuid4().hex[:8]}"
    create_topics(servers, source, partitions=2)
    declared = document(servers, source, "exactly-once", source, "not-used")
    declared["spec"] |= {
        "transform": {"python": {"module": "distinct_keys", "function": "keys"}},
        "state": {"partitions": 2, "outputMode": "append"},
        "sink": table.spec("counts", mode="append"),
        "checkpoint": {"volume": {"size": "1Gi"}},
    }
    declared["spec"]["source"]["maxOffsetsPerTrigger"] = 150
    job = job_of(declared, tmp_path, secrets=str(table.secrets))
    assert job.state is not None
    job = replace(job, state=replace(job.state, checkpoint=str(tmp_path / "state")))
    pipeline = DriverLives(servers, tmp_path, job, 2)
    pipeline.environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    pipeline.feed(200)
    for point in ("evaluated", "after-commit", "batch-end"):
        with pipeline.life() as killed:
            pipeline.caught_up(killed)
            hit = killed.arm(point)
            pipeline.feed(100)
            killed.arrived(hit)
            killed.job.kill()
    with pipeline.life() as last:
        pipeline.caught_up(last)
        pipeline.drain(last)
    keys = sorted(int(key) for (key,) in table.sql("SELECT key FROM counts"))
    assert keys == list(range(-(-pipeline.fed // 10)))
    assert faults(audit(spark, job)) == (0, 0, 0)
    assert_damage_is_reported(spark, job, table)
