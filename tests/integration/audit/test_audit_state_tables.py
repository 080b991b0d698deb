"""The audit judges the output of state in a table of PostgreSQL. A job writes it, and psql damages it.

See docs/audit.md#stateful-pipelines.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.reports import Verdict
from integration.support.pipelines import running
from integration.support.postgres import Database
from integration.support.stateful_tables import COUNTS, stateful_table
from integration.support.stateful_windows import feed_seconds, summed_windows
from waiting import WAIT, wait_until


def faults(spark: SparkSession, job: JobSpec) -> tuple[int, int, int]:
    """Lost, duplicated and unexpected rows, of a report that judges them."""
    report = audit(spark, job)
    result = (report.lost, report.duplicated, report.unexpected)
    assert report.verdict is (Verdict.BROKEN if any(result) else Verdict.HELD), report
    return result


def test_counts_of_an_upserted_table_are_compared_by_key(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    with stateful_table(kafka, database, tmp_path, f"audited-{uuid.uuid4().hex[:8]}") as pipeline:
        pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS))
        pipeline.drained()
    job = pipeline.spec
    assert faults(spark, job) == (0, 0, 0)
    for damage, expected in [
        ("UPDATE counts SET value = '1' WHERE key = 'p0'", (1, 0, 1)),
        ("DELETE FROM counts WHERE key = 'p0'", (1, 0, 0)),
        (
            "INSERT INTO counts SELECT 'p0', value FROM counts WHERE key = 'p1'; UPDATE counts SET key = 'other' "
            "WHERE key = 'p1'",
            (1, 0, 1),
        ),
    ]:
        database.sql(damage)
        assert faults(spark, job) == expected, damage
    database.sql("UPDATE counts SET key = 'p1' WHERE key = 'other'")
    assert faults(spark, job) == (0, 0, 0)

    database.sql('UPDATE ackwright.positions SET "offset" = "offset" - 1')
    with pytest.raises(JobError) as raised:
        audit(spark, job)
    assert raised.value.reason is Reason.STATE_LOST


SUMS = """
    SELECT CAST(key AS STRING) AS key, sum(CAST(split(CAST(value AS STRING), ':')[1] AS DOUBLE) / 10) AS value
    FROM source GROUP BY key
"""


def test_sums_of_fractions_in_an_upserted_table_are_compared_within_a_tolerance(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    with stateful_table(kafka, database, tmp_path, f"audited-{uuid.uuid4().hex[:8]}") as pipeline:
        database.sql("ALTER TABLE counts ALTER value TYPE float8 USING value::float8")
        pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=SUMS))
        pipeline.drained()
    assert faults(spark, pipeline.spec) == (0, 0, 0)
    for factor, expected in (("1 + 1e-12", (0, 0, 0)), ("1 + 1e-6", (1, 0, 1))):
        database.sql(f"UPDATE counts SET value = value * ({factor}) WHERE key = 'p0'")  # noqa: S608
        assert faults(spark, pipeline.spec) == expected, factor


def test_sums_of_fractions_in_a_table_of_rows_are_compared_within_a_tolerance(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    sink = database.spec("sums", createTable=True)
    job = summed_windows(kafka.bootstrap_servers, f"audited-{uuid.uuid4().hex[:8]}", tmp_path, sink, database.secrets)
    feed_seconds(job, range(60))
    with running(job, tmp_path / "1") as driver:
        driver.until_position(1, 60, WAIT)
        wait_until(
            lambda: database.sql("SELECT count(*) FROM sums") == [["5"]], "the windows up to 50 are in the table"
        )
        driver.job.drain()
        driver.job.wait(WAIT)
    assert faults(spark, job) == (0, 0, 0)
    for change, expected in (
        ("UPDATE sums SET value = value * (1 + 1e-12)", (0, 0, 0)),
        ("INSERT INTO sums SELECT * FROM sums WHERE key = '0'", (0, 1, 0)),
        ("UPDATE sums SET value = value * (1 + 1e-6) WHERE key = '10'", (1, 1, 1)),
    ):
        database.sql(change)
        assert faults(spark, job) == expected, change
