"""The audit of a Delta table, with its positions: what it proves, and what it leaves open.

tests/integration/spark/test_delta_rows.py has each kind of damage.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee, Transform
from ackwright_stream.reports import Verdict
from integration.support.audited import Pipeline
from integration.support.audited_delta import SQL, Audited, rows
from integration.support.delta_stores import sink


def counts(report: Report) -> tuple[int, int, int, int, int]:
    return report.expected, report.delivered, report.lost, report.duplicated, report.unexpected


def test_a_table_is_judged_by_the_positions_in_its_log(pipeline: Pipeline, tmp_path: Path) -> None:
    audited = Audited(pipeline, tmp_path)
    report = audited.audit()
    assert (counts(report), report.verdict) == ((0, 0, 0, 0, 0), Verdict.HELD)
    audited.send(("1", "a"), ("2", "b"), ("2", "b"), ("3", "c"))
    audited.deliver(0, 2, ("1", "a"), ("2", "b"))
    report = audited.audit()
    assert (counts(report), report.verdict) == ((2, 2, 0, 0, 0), Verdict.HELD)
    audited.deliver(2, 4, ("2", "b"))
    report = audited.audit()
    assert (counts(report), report.verdict) == ((4, 3, 1, 0, 0), Verdict.BROKEN)
    assert '"id":"3"' in str(report.offending[0].value)


def test_rows_that_the_position_has_not_passed_are_explained_only_under_at_least_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    audited = Audited(pipeline, tmp_path)
    audited.send(("1", "a"), ("2", "b"))
    audited.deliver(0, 1, ("1", "a"))
    write_deltalake(str(audited.path), pa.Table.from_batches([rows(("2", "b"))]), mode="append")
    assert counts(audited.audit()) == (1, 2, 0, 0, 1)
    assert counts(audited.audit(Guarantee.AT_LEAST_ONCE)) == (1, 2, 0, 0, 0)


def test_a_pipeline_that_never_ran(pipeline: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    job = replace(pipeline.job, transform=Transform(sql=SQL), sink=sink(tmp_path / "nothing"))
    assert counts(audit(spark, job)) == (0, 0, 0, 0, 0)
