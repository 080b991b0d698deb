"""Apache Iceberg as a sink: files and positions are one snapshot of the table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_catalog import SQL
from ackwright_stream.jobspec import IcebergSink, JobSpec, Reason
from ackwright_stream.sinks.base import Rows, Staged
from ackwright_stream.sinks.iceberg import columns, files
from ackwright_stream.sinks.iceberg.files import DataFile
from ackwright_stream.sinks.iceberg.log import TableLog, Version
from ackwright_stream.sinks.iceberg.table import place
from ackwright_stream.sinks.staged.parquet import FileFormat
from ackwright_stream.sinks.staged.positions import Names
from ackwright_stream.sinks.staged.store import StagingStore


class IcebergStore(StagingStore[Version, DataFile]):
    """The sink of one pipeline, in a driver or in a worker."""

    keeps_numbers_apart = True  # as properties
    marks_rows = False  # the id of the snapshot tells

    def __init__(self, job: JobSpec) -> None:
        self.sink = job.sink_of(IcebergSink)
        log = TableLog(self.sink, Names(job.group).snapshot)
        letters, create_table = self.sink.dead_letters, self.sink.create_table
        super().__init__(job, log, place(self.sink), letters, create_table=create_table)

    def file_format(self, version: Version) -> FileFormat:
        return files.file_format(version.handle.metadata)

    def check(self, rows: DataFrame | None = None) -> None:
        if self.sink.catalog == SQL and not self.job.spark.get("spark.master", "local").startswith("local"):
            raise JobError(
                Reason.INVALID_SPEC,
                f"the catalog {self.sink.uri} is a file, which the pods of a cluster cannot share safely; "
                "write the http:// or https:// address of a REST catalog to sink.iceberg.catalog.uri",
            )
        super().check(rows)

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output, self.sink)

    def stage(self, rows: Rows) -> tuple[int, Staged]:
        version = self._required()  # for each task: the catalog may hand out new credentials
        return files.stage(rows, version.handle.metadata, version.handle.io, self._place)

    def staged(self, of_tasks: Iterable[Staged]) -> Sequence[DataFile]:
        return files.staged(of_tasks)
