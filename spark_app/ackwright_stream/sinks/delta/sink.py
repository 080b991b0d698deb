"""Delta Lake as a sink: files and positions are one commit of the table's log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from ackwright_stream.jobspec import DeltaSink, JobSpec
from ackwright_stream.sinks.base import Rows, Staged
from ackwright_stream.sinks.delta import columns, files, storage
from ackwright_stream.sinks.delta.files import DataFile
from ackwright_stream.sinks.delta.log import TableLog, Version
from ackwright_stream.sinks.delta.table import place
from ackwright_stream.sinks.staged.parquet import FileFormat
from ackwright_stream.sinks.staged.store import StagingStore


class DeltaStore(StagingStore[Version, DataFile]):
    """The sink of one pipeline, in a driver or in a worker."""

    def __init__(self, job: JobSpec) -> None:
        self.sink = job.sink_of(DeltaSink)
        letters, create_table = self.sink.dead_letters, self.sink.create_table
        super().__init__(job, TableLog(self.sink), place(self.sink), letters, create_table=create_table)

    def file_format(self, version: Version) -> FileFormat:
        return files.FORMAT

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output, self.sink)

    def stage(self, rows: Rows) -> tuple[int, Staged]:
        return files.stage(rows, self.sink.partition_columns, storage.of(self.sink))

    def staged(self, of_tasks: Iterable[Staged]) -> Sequence[DataFile]:
        return files.staged(of_tasks)
