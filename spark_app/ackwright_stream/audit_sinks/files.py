"""What the audit reads of the sink files, and the comparison of their rows with the output that is expected there.

Names and footers are read here, as docs/files.md describes them, and rows by Spark's reader of Parquet: neither shares
code with the sink. The state of the drivers says where each lane's files begin to count; the rest is in the files.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ackwright_stream.audit_kafka import Lane, LaneStart
from ackwright_stream.audit_limits import Doubt
from ackwright_stream.audit_report import Comparison
from ackwright_stream.audit_sinks.base import Output
from ackwright_stream.audit_sinks.letter_topic import LetterTopicReader
from ackwright_stream.audit_sinks.tables import TableRows, compare
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, JobSpec, Reason
from ackwright_stream.sinks.files.columns import to_sink_columns
from ackwright_stream.storage_errors import translating
from ackwright_stream.storage_location import s3_of

_STATE = "_ackwright/state"
_RANGE = re.compile(r"^(\d{20})\.parquet$")


@dataclass(frozen=True)
class _LaneFiles:
    """A lane, as the state and the names of its files describe it."""

    directory: str
    settled: int  # the position that a driver has recorded; files from there on move it
    first: int  # where the lane began
    starts: tuple[int, ...]  # of the files that are named by the beginning of their range, sorted
    others: bool  # whether rows may be in other files, whose names do not say where they belong
    is_recreated: bool  # whether it began with a recreated topic

    @property
    def counted_from(self) -> int:
        """Where the rows begin that are there: the first file's beginning, if earlier files were removed."""
        return self.first if self.others else max(self.first, self.starts[0] if self.starts else self.settled)


class FilesReader:
    """The files of a pipeline's sink. A context manager, which removes its temporary files."""

    precedes_positions = False

    def __init__(self, spark: SparkSession, job: JobSpec, letters: LetterTopicReader | None = None) -> None:
        """letters: the reader of its dead letters; None: it has none."""
        self._letters = letters
        self._spark, self._job = spark, job
        self._sink = job.sink_of(FilesSink)
        self._paths: list[str] = []  # of the files that are compared
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-audit-")

    def __enter__(self) -> FilesReader:
        self._files, self._root = _file_system(self._sink)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._directory.cleanup()

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        """Where each lane began, or its first file begins.

        An old topic of the same name has other directories, and its dead letters are in the same topic.
        """
        return {
            lane: LaneStart(of_lane.counted_from, sink={} if of_lane.is_recreated else None)
            for lane, of_lane in self._lanes().items()
        }

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """The positions: the end of each lane's last file, or what a driver has recorded since."""
        known = self._lanes()
        return {lane: self._position(known[lane]) if lane in known else None for lane in lanes}

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The output, if its columns can be those of files."""
        return to_sink_columns(output)

    def dead_letters(self) -> LetterTopicReader | None:
        """A reader of the topic of dead letters, which no version of the sink includes."""
        return self._letters

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """Fixes the list of the files that readers see now, without those of old topics."""
        lanes = self._lanes()
        doubts = [
            Doubt(
                f"{topic}-{partition}: there is no file of the records from {of_lane.first} to {of_lane.counted_from}: "
                f"it was removed, or they gave no rows; the audit counts from {of_lane.counted_from}"
            )
            for (topic, partition), of_lane in lanes.items()
            if of_lane.counted_from > of_lane.first
        ]
        current = {of_lane.directory for of_lane in lanes.values()}
        paths = self._visible()
        of_old_topics = {d for d in (path.partition("/")[0] for path in paths) if self._is_old(d, current, lanes)}
        self._paths = [path for path in paths if path.partition("/")[0] not in of_old_topics]
        notes = [
            f"{', '.join(sorted(of_old_topics))}: of a topic that was recreated; the audit does not read its files"
        ]
        return doubts, notes if of_old_topics else []

    def compare(self, required: Output, late: Output | None, doubts: Sequence[Doubt], counted: int) -> Comparison:
        """Counts equal rows of the output and of the files."""
        schema = required.records.schema
        files = TableRows(self._sink.path, schema, lambda _: self._rows(schema))
        return compare(files, required, late, doubts, counted)

    def _rows(self, columns: StructType) -> DataFrame | None:
        """The rows of the files, with these columns; None if there are no files."""
        if not self._paths:
            return None
        for n, path in enumerate(self._paths):
            place = Path(self._directory.name, f"{n}.parquet")
            if isinstance(self._files, pafs.LocalFileSystem):
                place.symlink_to(Path(self._root, path))
            else:  # of which Spark has no client here
                with translating(f"reading {self._sink.path}"):
                    pafs.copy_files(f"{self._root}/{path}", str(place), self._files, pafs.LocalFileSystem())
        return self._spark.read.schema(columns).parquet(self._directory.name)

    # ------------------------------------------------------------ names, footers, the state

    def _lanes(self) -> dict[Lane, _LaneFiles]:
        """The lanes that the state has, with their files as they are now. The state is read first: rows precede it."""
        lanes = {}
        for entry in self._state().get("lanes", ()):
            topic_id = entry["position"]["topic_id"].replace("+", "-").replace("/", "_")  # as Kafka prints it
            directory = f"{entry['topic']}-{entry['partition']}.{topic_id}"
            names = self._names(directory)
            starts = sorted(int(match[1]) for match in map(_RANGE.match, names) if match)
            lanes[entry["topic"], entry["partition"]] = _LaneFiles(
                directory,
                settled=entry["position"]["offset"],
                first=entry["first"],
                starts=tuple(starts),
                others=len(starts) < len(names),
                is_recreated=entry["recreated"],
            )
        return lanes

    def _position(self, lane: _LaneFiles) -> int:
        last = max((start for start in lane.starts if start >= lane.settled), default=None)
        if last is None:
            return lane.settled
        path = f"{lane.directory}/{last:020}.parquet"
        with (
            translating(f"reading {self._sink.path}/{path}"),
            self._files.open_input_file(f"{self._root}/{path}") as file,
        ):
            return int((pq.read_metadata(file).metadata or {})[b"ackwright.until"])

    def _state(self) -> dict[str, Any]:
        """The last entry of the drivers; empty if there is none."""
        while True:
            names = self._names(_STATE)
            if not names:
                return {}
            with translating(f"reading {self._sink.path}/{_STATE}"):
                try:
                    with self._files.open_input_stream(f"{self._root}/{_STATE}/{max(names)}") as file:
                        entry: dict[str, Any] = json.loads(file.read())
                except FileNotFoundError:
                    continue  # a driver has removed it, because there are many newer ones
            if entry["group"] != self._job.group:
                raise JobError(
                    Reason.TABLE_UNSUITABLE,
                    f"{self._sink.path} belongs to the pipeline with the group {entry['group']}; correct "
                    "sink.files.path",
                )
            return entry

    def _names(self, directory: str) -> list[str]:
        return [Path(path).name for path in self._list(directory, recursive=False)]

    def _visible(self) -> list[str]:
        """The Parquet files that readers see."""
        hidden = ("_", ".")
        paths = (path for path in self._list("", recursive=True) if path.endswith(".parquet"))
        return [path for path in paths if not any(part.startswith(hidden) for part in path.split("/"))]

    def _list(self, directory: str, *, recursive: bool) -> list[str]:
        """The files in a directory, by their paths below the sink's."""
        selector = pafs.FileSelector(f"{self._root}/{directory}".rstrip("/"), recursive=recursive, allow_not_found=True)
        with translating(f"listing {self._sink.path}/{directory}"):
            infos = self._files.get_file_info(selector)
        return sorted(info.path.removeprefix(self._root).strip("/") for info in infos if info.is_file)

    @staticmethod
    def _is_old(directory: str, current: Collection[str], lanes: Collection[Lane]) -> bool:
        return directory not in current and any(directory.startswith(f"{t}-{p}.") for t, p in lanes)


def _file_system(sink: FilesSink) -> tuple[pafs.FileSystem, str]:
    """A client of the files, and their place for it. Not the one that the sink uses."""
    s3 = s3_of(sink)
    if s3 is None:
        return pafs.LocalFileSystem(), sink.path
    scheme, _, host = (s3.endpoint or "").partition("://")
    options: dict[str, Any] = {"region": s3.region, "access_key": s3.access_key, "secret_key": s3.secret_key}
    if s3.endpoint:
        options |= {"endpoint_override": host, "scheme": scheme}
    return pafs.S3FileSystem(**options), f"{s3.bucket}/{s3.prefix}".rstrip("/")
