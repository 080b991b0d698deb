"""The sink of files in this process, without Kafka and Spark, and a reader that shares no code with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from ackwright.sinks.files import FilesSink as Declared
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, JobSpec, Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import LANE, Lane, Range
from ackwright_stream.sinks.files.sink import FilesStore
from integration.support.parquet_rows import metadata_in, rows_in
from integration.support.pipelines import document, job_of

A, B = Lane("in", 0), Lane("in", 1)
ID = "8mhv/SzDTZeBgi+fv3vIHQ"  # in the alphabet of the client of Kafka
COLUMNS = StructType([StructField("lane", IntegerType()), StructField("n", LongType())])


def directory(lane: Lane = A, topic_id: str = ID) -> str:
    """Where a lane's files are."""
    return f"{lane}.{topic_id.replace('/', '_').replace('+', '-')}"


class Files:
    """What is in the directory or the bucket, as its readers see it."""

    def __init__(self, path: Path | str, files: pafs.FileSystem | None = None) -> None:
        """files: of a bucket, whose name then begins the path."""
        self.path, self._files = str(path), files or pafs.LocalFileSystem()

    def names(self) -> list[str]:
        """The Parquet files that readers see, by their paths."""
        infos = self._files.get_file_info(pafs.FileSelector(self.path, recursive=True, allow_not_found=True))
        paths = (info.path.removeprefix(self.path).strip("/") for info in infos if info.is_file)
        return sorted(path for path in paths if not path.startswith("_"))

    def rows(self) -> list[dict[str, Any]]:
        """The rows, as DuckDB reads all of the files together."""
        return rows_in(self._files, [f"{self.path}/{name}" for name in self.names()])

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        """The rows of one file."""
        return rows_in(self._files, [f"{self.path}/{name}"])

    def offsets(self, lane: Lane = A) -> list[int]:
        """The source offsets of the rows of a lane, sorted."""
        return sorted(row["n"] for row in self.rows() if row["lane"] == lane.partition)

    def chain(self, lane: Lane = A, topic_id: str = ID) -> list[tuple[int, int]]:
        """The ranges of a lane's files, in their order."""
        own = [name for name in self.names() if name.startswith(f"{directory(lane, topic_id)}/0")]
        return [(int(Path(name).stem), int(self.footer(name)["until"])) for name in own]

    def position(self, lane: Lane = A, topic_id: str = ID) -> int | None:
        """Where the chain of a lane ends; None if it has no files."""
        return max((until for _, until in self.chain(lane, topic_id)), default=None)

    def footer(self, name: str) -> dict[str, str]:
        metadata = metadata_in(self._files, f"{self.path}/{name}")
        return {key.removeprefix("ackwright."): value for key, value in metadata.items()}

    def state(self) -> dict[str, Any]:
        """The last entry that drivers have recorded."""
        infos = self._files.get_file_info(pafs.FileSelector(f"{self.path}/_ackwright/state"))
        with self._files.open_input_stream(max(info.path for info in infos)) as file:
            entry: dict[str, Any] = json.loads(file.read())
        return entry

    def settled(self, lane: Lane = A) -> int:
        """The position of a lane in that entry."""
        lanes = self.state()["lanes"]
        offsets = [
            entry["position"]["offset"]
            for entry in lanes
            if (entry["topic"], entry["partition"]) == (lane.topic, lane.partition)
        ]
        return int(offsets[0])

    def temporary(self) -> list[str]:
        """Files that are being written, or were left behind."""
        infos = self._files.get_file_info(pafs.FileSelector(f"{self.path}/_ackwright/tmp", allow_not_found=True))
        return sorted(info.base_name for info in infos)


def job(directory: Path, path: Path | str, name: str = "p", **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read."""
    spec = job_of(document("127.0.0.1:1", name, "exactly-once", "in", "out"), directory)
    return replace(spec, sink=sink(path, **fields), operation_timeout_ms=10_000)


def sink(path: Path | str, **fields: Any) -> FilesSink:
    """The sink's part of a jobspec."""
    return replace(Declared.model_validate({"path": str(path)}).to_job("a group"), **fields)


def rows(lane: Lane, start: int, until: int, *, number: int = 0, batch: int = 100) -> Iterable[pa.RecordBatch]:
    """The rows of a range of offsets, in batches. number: of the lane in its task."""
    for first in range(start, until, batch):
        offsets = range(first, min(until, first + batch))
        yield pa.record_batch(
            {
                "lane": pa.array([lane.partition] * len(offsets), pa.int32()),
                "n": pa.array(offsets, pa.int64()),
                LANE: pa.array([number] * len(offsets), pa.int32()),
            }
        )


class Frame:
    """What the sink asks of a frame."""

    def __init__(self, schema: StructType = COLUMNS) -> None:
        self.schema, self.columns = schema, schema.names


class Driver:
    """One driver of a pipeline: it has joined and settled its lanes."""

    def __init__(
        self,
        spec: JobSpec,
        lanes: Sequence[Lane] = (A,),
        start: int = 0,
        columns: StructType = COLUMNS,
        topic_id: str = ID,
    ) -> None:
        frame: Any = Frame(columns)
        self.sink = FilesStore(spec)
        self.sink.prepare(frame)
        self.membership = self.sink.join(lanes)
        positions = self.sink.read(lanes)
        number = 1 + max((p.driver for p in positions.values() if p), default=0)
        batches = [p.batch for p in positions.values() if p and p.batch is not None]
        ids = {lane.topic: topic_id for lane in lanes}
        self.lanes = Lanes(spec, self.sink, self.membership, number, ids, batch=max(batches, default=None))
        starts = {lane: at.offset if at else start for lane, at in positions.items()}
        self.lanes.settle(starts, [lane for lane, at in positions.items() if at is None], None, ())
        self.sink.record_columns(columns)

    def task(self) -> Lanes:
        """The lanes as a task of this driver has them, in another process."""
        own = self.lanes
        return Lanes(own.job, FilesStore(own.job), own.membership, own.driver, own.topic_ids)

    def prepared(self, batch: Range) -> Callable[[], int]:
        """A function that writes the rows of a range, without a position."""

        def write() -> int:
            written = rows(batch.lane, batch.start, batch.until)
            return self.task().sink.write([batch.lane], written, membership=self.membership)

        return write

    def deliver(self, *ranges: Range) -> tuple[Outcome, int]:
        """One task with these ranges, whose rows are their offsets."""
        batches = [b for i, r in enumerate(ranges) for b in rows(r.lane, r.start, r.until, number=i)]
        return self.task().advance(0, ranges, batches)


def batch_rows(start: int, until: int) -> Iterable[pa.RecordBatch]:
    """The rows of a batch of a stateful pipeline: one for each offset of lane A."""
    return (batch.drop_columns([LANE]) for batch in rows(A, start, until))


def decide(
    driver: Driver, batch: int, start: int, until: int, parts: Iterable[pa.RecordBatch] | None = None, *, text: str = ""
) -> int:
    """Decides a batch that moves lane A, with a row for each offset. parts: in place of these rows."""
    batches = batch_rows(start, until) if parts is None else parts
    decision = text or f"decision {batch}"
    return driver.lanes.decide_batch({A: start, B: 0}, {A: until, B: 0}, batches, batch, decision)


def conflict(call: Callable[[], Any], words: str = "was created since") -> None:
    """Asserts that the call meets a file of another driver, or its generation."""
    with pytest.raises(JobError, match=words) as caught:
        call()
    assert caught.value.reason is Reason.POSITION_CONFLICT


def overtaken(task: Lanes, batch: Range, meanwhile: Callable[[], Any]) -> tuple[Outcome, int]:
    """A task in which something happens between its decision and the creation of its file."""

    def late_rows() -> Iterator[Any]:
        yield from rows(batch.lane, batch.start, batch.until)
        meanwhile()

    return task.advance(0, [batch], late_rows())
