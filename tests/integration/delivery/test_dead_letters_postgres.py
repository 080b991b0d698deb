"""Dead letters in a table of the same PostgreSQL database, in the transaction of rows and positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Verdict
from integration.support.letter_pipelines import TablePipeline, table_pipeline
from integration.support.postgres import Database
from waiting import WAIT


def audited(spark: SparkSession, pipeline: TablePipeline) -> Report:
    report = audit(spark, pipeline.spec)
    print(report)
    return report


def test_dead_letters_in_a_table_are_there_once_across_kills(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """A task is killed between COPY and COMMIT, and after the commit; the audit finds what is then changed by hand."""
    p = table_pipeline(kafka, database, tmp_path, "exactly-once")
    p.feed()
    with p.life() as job:
        job.until_position(p.partitions, p.fed)
        for point in ("before-commit", "after-commit"):
            hit = job.arm(point, "kill")
            p.feed()
            job.arrived(hit)
            job.until_position(p.partitions, p.fed)
        job.until(lambda now: now["lag"] == 0, "no lag")
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
    p.assert_exactly_once()
    report = audited(spark, p)
    assert report.verdict is Verdict.HELD
    assert report.dead_letters == report.malformed == p.expected_letters().total()
    assert report.sent == p.partitions * p.fed

    database.sql("INSERT INTO letters SELECT * FROM letters WHERE source_offset = 3 AND source_partition = 0")
    assert (audited(spark, p).duplicated, audited(spark, p).lost) == (1, 0)
    database.sql("DELETE FROM letters WHERE source_offset = 3 AND source_partition = 0")
    report = audited(spark, p)
    assert (report.duplicated, report.lost, report.unexpected) == (0, 1, 0)


def test_at_least_once_loses_no_dead_letter_in_a_table(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """Killed when rows and dead letters are committed, and the positions have not moved."""
    p = table_pipeline(kafka, database, tmp_path, "at-least-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        before = p.letters()
        hit = job.arm("before-advance")
        p.feed()  # the batch may begin before each partition has its records
        job.arrived(hit)
        assert before < p.letters() <= p.expected_letters()
        job.job.kill()
    with p.life() as job:
        p.caught_up(job)
        p.drain(job)
    assert set(p.letters()) == set(p.expected_letters())
    assert set(p.output()) == set(p.expected_output())
    assert max(p.letters().values()) == 2


def test_at_most_once_repeats_no_dead_letter_in_a_table(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    """Killed after the claim of a task: its dead letters are lost, and no other."""
    p = table_pipeline(kafka, database, tmp_path, "at-most-once")
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        job.until(lambda now: now["deadLetters"] == p.expected_letters().total(), "all dead letters counted")
        before = p.fed
        hit = job.arm("claimed", lane=f"{p.source}-0")
        p.feed()
        job.arrived(hit)
        job.job.kill()
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        # The other partitions' tasks may have been killed before their claims.
        job.until(lambda now: now["deadLetters"] >= p.partitions * 20, "the dead letters of the last records")
        p.drain(job)
    letters, expected = p.letters(), p.expected_letters()
    assert letters < expected
    assert {letter.offset for letter in expected - letters} <= set(range(before, before + 200))


def test_at_least_once_and_too_many(kafka: EmbeddedKafka, database: Database, tmp_path: Path) -> None:
    p = table_pipeline(kafka, database, tmp_path, "at-least-once", max_fraction=0.2)
    p.feed()
    with p.life() as job:
        job.until_position(p.partitions, p.fed)
        before = p.letters()
        assert before == p.expected_letters()
        p.send(lambda partition, n: b"{", 500)
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.TOO_MANY_DEAD_LETTERS
    assert p.letters() == before


def test_the_table_must_have_the_columns_unless_it_is_created(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE rows (key bytea, value text)")
    p = table_pipeline(kafka, database, tmp_path, "exactly-once", createTable=False)
    for statement, problem in (
        ("SELECT 1", "has no table public.letters"),
        ("CREATE TABLE letters (pipeline text, source_topic int)", "the table has no column 'source_partition'"),
    ):
        database.sql(statement)
        with p.life() as job:
            assert job.job.wait(WAIT) == ExitCode.UNAVAILABLE
            failure = job.job.failure()
        assert failure is not None
        assert failure.reason is Reason.TABLE_UNSUITABLE
        assert problem in failure.message


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_pipeline_that_has_positions_gets_the_table(
    kafka: EmbeddedKafka, database: Database, tmp_path: Path, mode: str
) -> None:
    """Dead letters are declared later; rows are upserted beside them."""
    upsert: dict[str, Any] = {"mode": "upsert", "key": ["value"]} if mode == "upsert" else {}
    p = table_pipeline(kafka, database, tmp_path, "exactly-once", **upsert)
    p.feed()
    with p.life() as job:
        job.until_position(p.partitions, p.fed)
    database.sql("DROP TABLE letters")
    earlier = p.expected_letters()
    p.feed()
    with p.life() as job:
        job.until_position(p.partitions, p.fed)
    assert p.letters() == p.expected_letters() - earlier
    assert p.output() == p.expected_output()
