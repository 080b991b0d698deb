"""The audit of files, with their positions: what it proves, and what it leaves open.

tests/integration/spark/test_files_rows.py has each kind of damage.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee, JobSpec, Transform
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import LANE, Lane, Range
from ackwright_stream.reports import Verdict
from ackwright_stream.sinks.files.sink import FilesStore
from ackwright_stream.topic_ids import reader
from integration.support.audited import Pipeline, Record
from integration.support.files_stores import sink

COLUMNS = StructType([StructField("id", StringType()), StructField("v", StringType())])
SQL = "SELECT CAST(key AS STRING) AS id, CAST(value AS STRING) AS v FROM source"


def rows(*values: tuple[str, str]) -> pa.RecordBatch:
    numbers = pa.array([0] * len(values), pa.int32())
    return pa.record_batch({"id": [k for k, _ in values], "v": [v for _, v in values], LANE: numbers})


class Audited:
    """A pipeline into files, whose driver runs in this process."""

    def __init__(self, pipeline: Pipeline, directory: Path) -> None:
        self.pipeline, self.path = pipeline, directory / "files"
        self.lane = Lane(pipeline.topic("in"), 0)
        self.job: JobSpec = replace(pipeline.job, transform=Transform(sql=SQL), sink=sink(self.path))
        self.store = FilesStore(self.job)
        ids = reader(self.job)([self.lane.topic])
        self.lanes = Lanes(self.job, self.store, self.store.join([self.lane]), 1, ids)
        self.lanes.settle({self.lane: 0}, [self.lane], None, ())
        self.store.record_columns(COLUMNS)

    def send(self, *values: tuple[str, str]) -> None:
        self.pipeline.produce("in", [Record(k.encode(), v.encode()) for k, v in values])

    def deliver(self, start: int, until: int, *values: tuple[str, str]) -> None:
        """A batch of the job: these rows for these offsets."""
        outcome = self.lanes.advance(0, [Range(self.lane, start, until)], [rows(*values)] if values else [])
        assert outcome == (Outcome.DONE, len(values))

    def audit(self, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> Report:
        return audit(self.pipeline.spark, replace(self.job, guarantee=guarantee))


def counts(report: Report) -> tuple[int, int, int, int, int]:
    return report.expected, report.delivered, report.lost, report.duplicated, report.unexpected


def test_files_are_judged_by_the_positions_in_their_footers(pipeline: Pipeline, tmp_path: Path) -> None:
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
    first = next(audited.path.glob(f"{audited.lane}.*/{0:020}.parquet"))
    first.unlink()
    audited.send(("4", "d"))
    audited.deliver(4, 5, ("4", "d"))
    report = audited.audit()
    assert counts(report) == (3, 2, 1, 0, 0), "it counts from the first file that is left"
    assert "there is no file of the records from 0 to 2" in report.doubts[0]


def test_rows_that_the_position_has_not_passed_are_explained_only_under_at_least_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    audited = Audited(pipeline, tmp_path)
    audited.send(("1", "a"), ("2", "b"))
    audited.deliver(0, 1, ("1", "a"))
    assert audited.store.write([audited.lane], [rows(("2", "b"))], membership=b"") == 1
    assert counts(audited.audit()) == (1, 2, 0, 0, 1)
    assert counts(audited.audit(Guarantee.AT_LEAST_ONCE)) == (1, 2, 0, 0, 0)


def test_files_of_an_old_topic_are_left_out(pipeline: Pipeline, tmp_path: Path) -> None:
    audited = Audited(pipeline, tmp_path)
    old = audited.path / f"{audited.lane}.another-topic-id"
    audited.send(("1", "a"))
    audited.deliver(0, 1, ("1", "a"))
    old.mkdir()
    (old / f"{0:020}.parquet").hardlink_to(next(audited.path.glob(f"*/{0:020}.parquet")))
    report = audited.audit()
    assert (counts(report), report.verdict) == ((1, 1, 0, 0, 0), Verdict.HELD)
    assert "of a topic that was recreated" in report.notes[0]


def test_a_pipeline_that_never_ran(pipeline: Pipeline, spark: SparkSession, tmp_path: Path) -> None:
    job = replace(pipeline.job, transform=Transform(sql=SQL), sink=sink(tmp_path / "nothing"))
    assert counts(audit(spark, job)) == (0, 0, 0, 0, 0)
