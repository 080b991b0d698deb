"""What the audit reads of an Iceberg table, and the comparison of its rows with the output that is expected there.

One version of the table is read: its metadata have positions and the snapshot of the same moment. The client of the
catalog is the sink's; manifests are read here, by the text of Iceberg's specification, and the files by Spark's reader
of Parquet: neither shares code with the sink, nor with the client that commits.
"""

from __future__ import annotations

import base64
import binascii
import tempfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import fastavro
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ackwright_stream import audit_limits
from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.letter_topic import LetterTopicReader
from ackwright_stream.audit_sinks.tables import AppendedRows, Positions, TableRows, compare
from ackwright_stream.column_names import named
from ackwright_stream.errors import JobError
from ackwright_stream.iceberg_catalog import CatalogClient, local_path, translating
from ackwright_stream.iceberg_types import to_spark
from ackwright_stream.jobspec import IcebergSink, JobSpec, Reason
from ackwright_stream.sinks.iceberg import columns

# A column may have had another name when the file was written. Only for schemas whose fields have ids.
_BY_ID = "spark.sql.parquet.fieldId.read.enabled"
_DELETED = 2  # status of a manifest's entry
_COPY_BYTES = 1 << 20


class IcebergReader(AppendedRows):
    """One version of the table of a pipeline's sink. A context manager, which removes its temporary files."""

    precedes_positions = False
    writes_apart = False

    def __init__(self, spark: SparkSession, job: JobSpec, letters: LetterTopicReader | None = None) -> None:
        """letters: the reader of its dead letters; None: it has none."""
        self._letters = letters
        self._spark, self._job = spark, job
        self._sink = job.sink_of(IcebergSink)
        self._table: Table | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-audit-")

    def __enter__(self) -> IcebergReader:
        self._table = CatalogClient(self._sink).load()
        properties = self._table.metadata.properties if self._table else {}
        numbers = {name: int(value) for name, value in properties.items() if value.isdecimal()}
        self._positions = Positions(self._job.group, numbers)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._directory.cleanup()

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        """Where each lane began. Nothing tells which rows come from an old topic of the same name."""
        return self._positions.lane_starts(self._job.source.topics)

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """The positions, which are the same as long as the version is read."""
        return self._positions.of(lanes)

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The output, if its columns can be those of a table."""
        return columns.to_sink_columns(output, self._sink)

    def dead_letters(self) -> LetterTopicReader | None:
        """A reader of the topic of dead letters, which no version of the sink includes."""
        return self._letters

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """What cannot be judged: rows of an old topic, of which nothing tells where they end. The version is fixed."""
        _, doubts, notes = audit_limits.output_of_old_topic(None, "", len(self._job.source.topics), starts, {})
        return doubts, notes

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        """Counts equal rows of the output and of the table."""
        schema = to_spark(self._table.metadata.schema(), ids=True) if self._table else StructType()
        return compare(TableRows(self._sink.table, schema, self._rows), required, late, doubts, counted)

    def decisions(self) -> Sequence[str]:
        """The decisions of the pipeline, oldest first, in the summaries of the snapshots that made them.

        A rollback leaves a snapshot where it is, so that rows which it took away are missed; only expiry removes one.
        """
        name = f"ackwright/{self._job.group}/decision"
        snapshots = self._table.metadata.snapshots if self._table else []
        summaries = [s.summary for s in sorted(snapshots, key=lambda s: s.sequence_number or 0) if s.summary]
        packed = [summary.additional_properties.get(name) for summary in summaries]
        return [_unpacked(text) for text in packed if text is not None]

    def has_decided(self) -> bool:
        """Whether a batch was decided. The table has the number of the last one, its snapshots the decisions."""
        return self._positions.batches > 0

    def _rows(self, names: Sequence[str]) -> DataFrame | None:
        """The table's rows; None if there are none."""
        if self._table is None:
            return None
        with translating(f"reading the table {self._sink.table}"):
            paths = list(self._files(self._table))
            for n, path in enumerate(paths):
                self._fetch(self._table, path, Path(self._directory.name, f"{n}.parquet"))
        if not paths:
            return None
        schema = to_spark(self._table.metadata.schema(), ids=True)
        selected = StructType([field for field in schema.fields if field.name in names])
        self._spark.conf.set(_BY_ID, "true")
        rows = self._spark.read.schema(selected).parquet(self._directory.name)
        return rows.select(*map(named, names))

    def _files(self, table: Table) -> Iterator[str]:
        """The paths of the data files in the current snapshot."""
        snapshot = table.metadata.current_snapshot()
        if snapshot is None:
            return
        for manifest in self._avro(table, snapshot.manifest_list):
            for entry in self._avro(table, manifest["manifest_path"]):
                if entry["status"] == _DELETED:
                    continue
                file = entry["data_file"]
                if file.get("content"):
                    raise JobError(
                        Reason.TABLE_UNSUITABLE,
                        f"the table {self._sink.table} has the delete file {file['file_path']}, so the audit cannot "
                        "tell which rows are left; rewrite the table's data files, and audit again",
                    )
                if file["file_format"].upper() != "PARQUET":
                    raise JobError(
                        Reason.TABLE_UNSUITABLE,
                        f"the table {self._sink.table} has the file {file['file_path']}, and the audit reads Parquet; "
                        "rewrite the table's data files, and audit again",
                    )
                yield file["file_path"]

    def _avro(self, table: Table, location: str) -> list[Any]:
        with table.io.new_input(location).open() as file:
            return list(fastavro.reader(file))

    def _fetch(self, table: Table, location: str, place: Path) -> None:
        """Makes a file of the table available to Spark, which has no client of S3."""
        if (local := local_path(location)) is not None:
            place.symlink_to(local)
            return
        with table.io.new_input(location).open(seekable=False) as file, place.open("wb") as copy:
            while part := file.read(_COPY_BYTES):
                copy.write(part)


def _unpacked(text: str) -> str:
    """A decision in a summary, which is compressed and in base64."""
    try:
        return zlib.decompress(base64.b64decode(text, validate=True)).decode()
    except (binascii.Error, zlib.error, ValueError) as e:
        raise JobError(
            Reason.STATE_LOST, f"a decision of the pipeline in the summary of a snapshot cannot be read ({e!r})"
        ) from e
