"""The Delta sink in this process, without Kafka and Spark, and a reader that shares no code with it.

The reader follows the log from its first entry by the text of Delta's protocol, and reads the files with pyarrow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from ackwright.sinks.delta import DeltaSink as Declared
from ackwright_stream.jobspec import DeltaSink, JobSpec
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Lane, Range
from ackwright_stream.sinks.base import StagedRows
from ackwright_stream.sinks.delta.sink import DeltaStore
from integration.support.pipelines import document, job_of

A, B = Lane("in", 0), Lane("in", 1)
IDS = {"in": "8mhvHSzDTZeBgiJfv3vIHQ"}
COLUMNS = StructType([StructField("lane", IntegerType()), StructField("n", LongType())])


class Table:
    """A Delta table in a directory, as its log describes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def version(self) -> int:
        return len(self._entries()) - 1

    def transactions(self) -> dict[str, int]:
        """The last number of each application transaction."""
        return {a["txn"]["appId"]: a["txn"]["version"] for a in self._actions() if "txn" in a}

    def files(self) -> dict[str, dict[str, str | None]]:
        """The partition values of the files of the latest version, by their paths."""
        files = {}
        for action in self._actions():
            if add := action.get("add"):
                files[unquote(add["path"])] = add["partitionValues"]
            if remove := action.get("remove"):
                del files[unquote(remove["path"])]
        return files

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the latest version; partition columns as the log has them."""
        rows = []
        for path, values in self.files().items():
            rows += [{**row, **values} for row in pq.ParquetFile(self.path / path).read().to_pylist()]
        return rows

    def orphans(self) -> list[str]:
        """The data files that no version has."""
        committed = {unquote(a["add"]["path"]) for a in self._actions() if "add" in a}
        return sorted(p.name for p in self.path.glob("*.parquet") if p.name not in committed)

    def offsets(self, lane: Lane = A) -> list[int]:
        """The source offsets of the rows of a lane, sorted."""
        return sorted(row["n"] for row in self.rows() if row["lane"] == lane.partition)

    def position(self, group: str, lane: Lane = A) -> int | None:
        """The position of a lane."""
        names = self.transactions()
        return names.get(f"ackwright/{group}/{lane.topic}/{lane.partition}/{IDS[lane.topic]}")

    def _entries(self) -> list[Path]:
        return sorted((self.path / "_delta_log").glob("*.json"))

    def _actions(self) -> Iterator[dict[str, Any]]:
        for version, entry in enumerate(self._entries()):
            assert entry.name == f"{version:020}.json", "a version is missing"
            yield from map(json.loads, entry.read_text().splitlines())


def job(directory: Path, path: Path | str, name: str = "p", **fields: Any) -> JobSpec:
    """A jobspec that only the sink and the lanes read."""
    spec = job_of(document("127.0.0.1:1", name, "exactly-once", "in", "out"), directory)
    return replace(spec, sink=sink(path, **fields), operation_timeout_ms=10_000)


def sink(path: Path | str, **fields: Any) -> DeltaSink:
    """The sink's part of a jobspec."""
    declared = Declared.model_validate({"path": str(path), "createTable": True})
    return replace(declared.to_job("a group"), **fields)


def rows(lane: Lane, start: int, until: int, batch: int = 100) -> Iterable[pa.RecordBatch]:
    """The rows of a range of offsets, in batches."""
    for first in range(start, until, batch):
        offsets = range(first, min(until, first + batch))
        yield pa.record_batch(
            {"lane": pa.array([lane.partition] * len(offsets), pa.int32()), "n": pa.array(offsets, pa.int64())}
        )


class Frame:
    """What the sink asks of a frame."""

    def __init__(self, schema: StructType = COLUMNS) -> None:
        self.schema, self.columns = schema, schema.names

    def select(self, *_: object) -> Frame:
        return self


class Driver:
    """One driver of a pipeline: it has joined and settled its lanes."""

    def __init__(
        self, spec: JobSpec, lanes: Sequence[Lane] = (A,), start: int = 0, columns: StructType = COLUMNS
    ) -> None:
        frame: Any = Frame(columns)
        self.sink = DeltaStore(spec)
        self.sink.prepare(frame)
        self.membership = self.sink.join(lanes)
        positions = self.sink.read(lanes)
        number = 1 + max((p.driver for p in positions.values() if p), default=0)
        self.lanes = Lanes(spec, self.sink, self.membership, number, IDS)
        starts = {lane: at.offset if at else start for lane, at in positions.items()}
        self.lanes.settle(starts, [lane for lane, at in positions.items() if at is None], None, ())

    def stage(self, *of_tasks: Iterable[pa.RecordBatch]) -> StagedRows:
        """What these tasks have staged, each in another process than the driver."""
        answers = [DeltaStore(self.lanes.job).stage(batches) for batches in of_tasks]
        return StagedRows(tuple(staged for _, staged in answers), sum(n for n, _ in answers))

    def commit(self, ranges: Sequence[Range], staged: StagedRows) -> tuple[Outcome, int]:
        """Commits what tasks have staged."""
        return self.lanes.advance_staged(self.sink.staging, ranges, staged)

    def deliver(self, *ranges: Range) -> tuple[Outcome, int]:
        """A batch with these ranges, whose rows are their offsets; a task for each."""
        return self.commit(ranges, self.stage(*(rows(r.lane, r.start, r.until) for r in ranges)))
