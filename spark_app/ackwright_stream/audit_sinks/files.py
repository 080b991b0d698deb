"""What the audit reads of the sink files, and the comparison of their rows with the output that is expected there.

Names and footers are read here, as docs/files.md describes them, and rows by Spark's reader of Parquet: neither shares
code with the sink. The state of the drivers says where each lane's files begin to count; the rest is in them. Files
of a stateful pipeline are those of its batches, and have their decisions.
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
from ackwright_stream.audit_sinks.tables import AppendedRows, TableRows, compare
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, JobSpec, Reason
from ackwright_stream.sinks.files.columns import to_sink_columns
from ackwright_stream.storage_errors import translating
from ackwright_stream.storage_location import s3_of

_STATE = "_ackwright/state"
_BATCHES = "batches"
_RANGE = re.compile(r"^(\d{20})\.parquet$")  # of a lane, or a batch
_ENTRY = re.compile(r"[0-9]{20}\.json")  # of the state; an editor's backup has another name


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


class FilesReader(AppendedRows):
    """The files of a pipeline's sink. A context manager, which removes its temporary files."""

    precedes_positions = False
    writes_apart = False

    def __init__(self, spark: SparkSession, job: JobSpec, letters: LetterTopicReader | None = None) -> None:
        """letters: the reader of its dead letters; None: it has none."""
        self._letters = letters
        self._spark, self._job = spark, job
        self._sink = job.sink_of(FilesSink)
        self._paths: list[str] = []  # of the files that are compared
        self._footers: dict[int, tuple[str, dict[Lane, int]]] = {}  # by batch: the decision, and the positions
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-audit-")

    def __enter__(self) -> FilesReader:
        self._files, self._root = _file_system(self._sink)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._directory.cleanup()

    def lane_starts(self) -> Mapping[Lane, LaneStart]:
        """Where each lane began, or its first file begins.

        An old topic of the same name has other directories, and its dead letters are in the same topic. Of a stateful
        pipeline every lane counts from where it began.
        """
        stateful = self._job.state is not None
        return {
            lane: LaneStart(
                of_lane.first if stateful else of_lane.counted_from, sink={} if of_lane.is_recreated else None
            )
            for lane, of_lane in self._lanes().items()
        }

    def positions(self, lanes: Collection[Lane]) -> Mapping[Lane, int | None]:
        """The positions: the end of each lane's last file, or what a driver has recorded since."""
        known = self._lanes()
        behind = self._behind_batches()
        return {lane: behind.get(lane, self._position(known[lane])) if lane in known else None for lane in lanes}

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        """The output, if its columns can be those of files."""
        return to_sink_columns(output)

    def dead_letters(self) -> LetterTopicReader | None:
        """A reader of the topic of dead letters, which no version of the sink includes."""
        return self._letters

    def fix_content(self, required: Output, starts: Mapping[Lane, LaneStart]) -> tuple[list[Doubt], list[str]]:
        """Fixes the list of the files that readers see now, without those of old topics."""
        if self._job.state is not None:
            self._paths = self._visible()
            return self._removed_batches(), []
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
        comparison = compare(files, required, late, doubts, counted)
        return comparison.not_judged() if self._job.state is not None and self._removed_batches() else comparison

    def decisions(self) -> Sequence[str]:
        """The decisions of the files that are there, and the last one, which the drivers record as well."""
        recorded = self._recorded()
        batches = self._batches()
        texts = [batches[number][0] for number in sorted(batches)]
        return texts if recorded["following"] <= max(batches, default=-1) + 1 else [*texts, recorded["decision"]]

    def has_decided(self) -> bool:
        """Whether a batch was decided. The drivers record the last decision."""
        return bool(self.decisions())

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

    # ------------------------------------------------------------ the batches of a stateful pipeline

    def _batches(self) -> Mapping[int, tuple[str, dict[Lane, int]]]:
        """Of the file of each batch: the decision, and the positions behind it."""
        if self._job.state is None:
            return {}
        numbers = [int(match[1]) for match in map(_RANGE.match, self._names(_BATCHES)) if match]
        self._footers = {n: self._footers.get(n) or self._footer(n) for n in numbers}
        return self._footers

    def _footer(self, number: int) -> tuple[str, dict[Lane, int]]:
        metadata = self._metadata(f"{_BATCHES}/{number:020}.parquet")
        lanes = json.loads(metadata[b"ackwright.positions"])
        positions = {(lane["topic"], lane["partition"]): int(lane["offset"]) for lane in lanes}
        return metadata[b"ackwright.decision"].decode(), positions

    def _behind_batches(self) -> Mapping[Lane, int]:
        """The positions behind the last batch, unless a driver has recorded them since."""
        batches = self._batches()
        last = max(batches, default=-1)
        return batches[last][1] if last >= self._recorded()["following"] else {}

    def _recorded(self) -> dict[str, Any]:
        """The number of the next file when a driver recorded it last, and the decision before it."""
        recorded: dict[str, Any] = self._state().get("decided", {"following": 0})
        return recorded

    def _removed_batches(self) -> list[Doubt]:
        """A doubt if files of the state's batches were removed: their rows and decisions are gone."""
        decisions, numbers = self.decisions(), self._batches().keys()
        if not decisions:
            return []
        following = max(self._recorded()["following"], *(number + 1 for number in numbers), 0)
        missing = sorted({*range(min(numbers, default=0), following)}.difference(numbers))
        if json.loads(decisions[0])["batch"] == 0 and not missing:
            return []
        named = f", {missing[0]:020}.parquet among them" if missing else ""
        return [
            Doubt(
                f"files were removed from {self._sink.path}/{_BATCHES}, with the decisions of their batches{named}; "
                "the audit does not judge the output"
            )
        ]

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
        return int(self._metadata(f"{lane.directory}/{last:020}.parquet")[b"ackwright.until"])

    def _metadata(self, path: str) -> Mapping[bytes, bytes]:
        """The key-value metadata of a file's footer."""
        with (
            translating(f"reading {self._sink.path}/{path}"),
            self._files.open_input_file(f"{self._root}/{path}") as file,
        ):
            return pq.read_metadata(file).metadata or {}

    def _state(self) -> dict[str, Any]:
        """The last entry of the drivers; empty if there is none."""
        while True:
            names = [name for name in self._names(_STATE) if _ENTRY.fullmatch(name)]
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
                    f"{self._sink.path} belongs to the pipeline with the group {entry['group']}; audit "
                    "the pipeline whose sink.files.path it is",
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
