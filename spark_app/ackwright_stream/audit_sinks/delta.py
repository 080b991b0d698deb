"""What the audit reads of a Delta table, and the comparison of its rows with the output that is expected there.

One version of the table is read: its log has positions and files of the same moment. The log is read here, by the text
of Delta's protocol, and the files by Spark's reader of Parquet: neither shares code with the sink, nor with delta-rs.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from ackwright_stream import audit_limits
from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.letter_topic import LetterTopicReader
from ackwright_stream.audit_sinks.tables import AppendedRows, Positions, TableRows, compare
from ackwright_stream.column_names import named
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, JobSpec, Reason
from ackwright_stream.sinks.delta import columns
from ackwright_stream.storage_location import s3_of

_LOG = "_delta_log"
_ENTRY = re.compile(r"^(\d{20})\.json$")
_CHECKPOINT = re.compile(r"^(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet$")
_READ = ("txn", "add", "remove", "metaData")  # actions
_PARTITION = "ackwright_partition"  # the number of a file's partition values


@dataclass
class _Content:
    """One version of the table, as its log describes it."""

    version: int = -1
    transactions: dict[str, int] = field(default_factory=dict)
    files: dict[str, Mapping[str, str | None]] = field(default_factory=dict)  # partition values by path
    schema: StructType = field(default_factory=StructType)
    partition_columns: tuple[str, ...] = ()
    decisions: list[str] = field(default_factory=list)  # of a stateful pipeline, oldest first

    def apply(self, action: Mapping[str, Any]) -> None:
        """Follows one action of the log."""
        if txn := action.get("txn"):
            self.transactions[txn["appId"]] = txn["version"]
        if add := action.get("add"):
            if add.get("deletionVector"):
                raise JobError(
                    Reason.TABLE_UNSUITABLE,
                    f"the file {add['path']} has a deletion vector, so the audit cannot tell which of its rows are "
                    "left; run REORG TABLE … APPLY (PURGE), and audit again",
                )
            self.files[add["path"]] = dict(add["partitionValues"] or {})
        if remove := action.get("remove"):
            self.files.pop(remove["path"], None)
        if metadata := action.get("metaData"):
            self.schema = StructType.fromJson(json.loads(metadata["schemaString"]))
            self.partition_columns = tuple(metadata["partitionColumns"] or ())


class DeltaReader(AppendedRows):
    """One version of the table of a pipeline's sink. A context manager, which removes its temporary files."""

    precedes_positions = False
    writes_apart = False

    def __init__(self, spark: SparkSession, job: JobSpec, letters: LetterTopicReader | None = None) -> None:
        """letters: the reader of its dead letters; None: it has none."""
        self._letters = letters
        self._spark, self._job = spark, job
        self._sink = job.sink_of(DeltaSink)
        self._content = _Content()
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-audit-")

    def __enter__(self) -> DeltaReader:
        self._files, self._root = _file_system(self._sink)
        try:
            self._content = self._read_log()
        except OSError as e:
            raise JobError(Reason.SINK_UNREACHABLE, f"reading the log of {self._sink.path}: {e}") from e
        self._positions = Positions(self._job.group, self._content.transactions)
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
        table = TableRows(self._sink.path, self._content.schema, self._rows)
        return compare(table, required, late, doubts, counted)

    def decisions(self) -> Sequence[str]:
        """The decisions of the pipeline, oldest first, as the commits that made them have them.

        The log's entries before a checkpoint are there until they expire (delta.logRetentionDuration).
        """
        return self._content.decisions

    def has_decided(self) -> bool:
        """Whether a batch was decided. Each version has the number of the last one, the log's entries the decisions."""
        return self._positions.batches > 0

    # ------------------------------------------------------------ the rows

    def _rows(self, names: Sequence[str]) -> DataFrame | None:
        """The table's rows; None if there are none. The log has the values of partition columns."""
        content = self._content
        if not content.files:
            return None
        combinations: dict[tuple[str | None, ...], int] = {}
        for n, (path, values) in enumerate(content.files.items()):
            key = tuple(values.get(name) for name in content.partition_columns)
            number = combinations.setdefault(key, len(combinations))
            place = Path(self._directory.name, f"{_PARTITION}={number}", f"{n}.parquet")
            place.parent.mkdir(exist_ok=True)
            self._fetch(unquote(path), place)
        schema = content.schema
        in_files = StructType([f for f in schema.fields if f.name not in content.partition_columns])
        rows = self._spark.read.schema(in_files.add(_PARTITION, "integer")).parquet(self._directory.name)
        texts = [StructField(name, StringType()) for name in content.partition_columns]
        values = self._spark.createDataFrame(
            [(number, *key) for key, number in combinations.items()],
            StructType([StructField(_PARTITION, IntegerType()), *texts]),
        )
        typed = [named(n).cast(schema[n].dataType).alias(n) for n in content.partition_columns]
        joined = rows.join(F.broadcast(values.select(_PARTITION, *typed)), _PARTITION)
        return joined.select(*map(named, names))

    def _fetch(self, path: str, place: Path) -> None:
        """Makes a file of the table available to Spark, which has no client of S3."""
        if isinstance(self._files, pafs.LocalFileSystem):
            place.symlink_to(Path(self._root, path))
        else:
            pafs.copy_files(f"{self._root}/{path}", str(place), self._files, pafs.LocalFileSystem())

    # ------------------------------------------------------------ the log

    def _read_log(self) -> _Content:
        """The latest version: the last complete checkpoint, and the entries behind it."""
        selector = pafs.FileSelector(f"{self._root}/{_LOG}", allow_not_found=True)
        names = [info.base_name for info in self._files.get_file_info(selector)]
        content = _Content()
        checkpoints: dict[int, list[str]] = {}
        for name in names:
            if match := _CHECKPOINT.match(name):
                checkpoints.setdefault(int(match[1]), []).append(name)
        for version, parts in sorted(checkpoints.items(), reverse=True):
            if len(parts) == int((_CHECKPOINT.match(parts[0]) or [0, 0, 1])[2] or 1):
                for part in parts:
                    self._apply_checkpoint(content, part)
                content.version = version
                break
        versions = sorted(int(match[1]) for match in map(_ENTRY.match, names) if match)
        for version in versions:
            if version <= content.version:
                continue
            if version != content.version + 1:
                raise JobError(
                    Reason.TABLE_UNSUITABLE,
                    f"the log of {self._sink.path} has no version {content.version + 1}, so its content is not known; "
                    "restore the file",
                )
            for action in self._entry(version):
                content.apply(action)
            content.version = version
        if self._job.state is not None:
            content.decisions = self._decisions(versions)
        return content

    def _entry(self, version: int) -> list[dict[str, Any]]:
        """The actions of one version."""
        with self._files.open_input_stream(f"{self._root}/{_LOG}/{version:020}.json") as entry:
            return [json.loads(line) for line in entry.read().splitlines()]

    def _decisions(self, versions: Sequence[int]) -> list[str]:
        """What the commits of these versions have of the pipeline's decisions."""
        name = f"ackwright/{self._job.group}/decision"
        infos = (action.get("commitInfo") or {} for version in versions for action in self._entry(version))
        return [info[name] for info in infos if name in info]

    def _apply_checkpoint(self, content: _Content, name: str) -> None:
        with self._files.open_input_file(f"{self._root}/{_LOG}/{name}") as file:
            parquet = pq.ParquetFile(file)
            present = [column for column in _READ if column in parquet.schema_arrow.names]
            for batch in parquet.iter_batches(columns=present):
                for action in batch.to_pylist(maps_as_pydicts="strict"):
                    content.apply(action)


def _file_system(sink: DeltaSink) -> tuple[pafs.FileSystem, str]:
    """A client of the table's files, and the place of the table for it. Not the one that the sink uses."""
    s3 = s3_of(sink)
    if s3 is None:
        return pafs.LocalFileSystem(), sink.path
    scheme, _, host = (s3.endpoint or "").partition("://")
    options: dict[str, Any] = {"region": s3.region, "access_key": s3.access_key, "secret_key": s3.secret_key}
    if s3.endpoint:
        options |= {"endpoint_override": host, "scheme": scheme}
    return pafs.S3FileSystem(**options), f"{s3.bucket}/{s3.prefix}".rstrip("/")
