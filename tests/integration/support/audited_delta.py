"""A pipeline into a Delta table whose driver runs in this process, for tests of the audit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from ackwright_stream.audit import audit
from ackwright_stream.audit_report import Report
from ackwright_stream.jobspec import Guarantee, JobSpec, Transform
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.base import StagedRows
from ackwright_stream.sinks.delta.sink import DeltaStore
from ackwright_stream.topic_ids import reader
from integration.support.audited import Pipeline, Record
from integration.support.delta_stores import sink
from integration.support.staged_drivers import Frame

COLUMNS = StructType([StructField("id", StringType()), StructField("v", StringType())])
SQL = "SELECT CAST(key AS STRING) AS id, CAST(value AS STRING) AS v FROM source"


def rows(*values: tuple[str, str]) -> pa.RecordBatch:
    """Rows with COLUMNS."""
    return pa.record_batch({"id": [k for k, _ in values], "v": [v for _, v in values]})


class Audited:
    """The pipeline."""

    def __init__(self, pipeline: Pipeline, directory: Path, sql: str = SQL, **of_sink: Any) -> None:
        """of_sink: fields of the sink in the jobspec."""
        self.pipeline, self.path = pipeline, directory / "table"
        self.lane = Lane(pipeline.topic("in"), 0)
        self.job: JobSpec = replace(pipeline.job, transform=Transform(sql=sql), sink=sink(self.path, **of_sink))
        self.store = DeltaStore(self.job)
        frame: Any = Frame(COLUMNS)
        self.store.prepare(frame)
        ids = reader(self.job)([self.lane.topic])
        self.lanes = Lanes(self.job, self.store, self.store.join([self.lane]), 1, ids)
        self.lanes.settle({self.lane: 0}, [self.lane], None, ())

    def send(self, *values: tuple[str, str]) -> None:
        """Records of the source."""
        self.pipeline.produce("in", [Record(k.encode(), v.encode()) for k, v in values])

    def deliver(self, start: int, until: int, *values: tuple[str, str]) -> None:
        """A batch of the job: these rows for these offsets."""
        records, staged = self.store.stage([rows(*values)] if values else [])
        batch = StagedRows((staged,), records)
        outcome = self.lanes.advance_staged(self.store.staging, [Range(self.lane, start, until)], batch)
        assert outcome == (Outcome.DONE, len(values))

    def audit(self, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> Report:
        """The report of an audit."""
        return audit(self.pipeline.spark, replace(self.job, guarantee=guarantee))
