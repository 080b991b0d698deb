"""The files of a Delta table's rows: tasks write them, and the driver's commit makes them part of the table.

Their names are new ones, and the log alone knows the values of partition columns. A file that is never committed has no
name in the log; VACUUM (of delta-rs: with full=True) removes it once it is older than the table's retention.
"""

from __future__ import annotations

import datetime
import json
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.base import Rows, Staged
from ackwright_stream.sinks.delta.storage import Storage, translating

_BUFFERED = 64 << 20  # bytes of rows in memory, of all files together, before they are written as row groups
_INDEX = "__ackwright_index"


@dataclass(frozen=True)
class DataFile:
    """A file with rows, as a commit adds it."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int  # bytes
    modified_ms: int
    rows: int
    nulls: Mapping[str, int]  # by column

    @property
    def stats(self) -> str:
        """As the log has it."""
        return json.dumps({"numRecords": self.rows})


def stage(rows: Rows, partition_columns: Sequence[str], storage: Storage) -> tuple[int, Staged]:
    """Writes the rows to new files, one for each combination of partition values; returns their number and the files.

    Raises JobError; then the files are removed, if that is possible.
    """
    files: dict[tuple[str | None, ...], _Writer] = {}
    buffered = 0
    with ExitStack() as on_error:
        for batch in rows:
            for values, part in split(batch, partition_columns):
                if values not in files:
                    files[values] = _Writer(dict(zip(partition_columns, values, strict=True)), storage)
                    on_error.callback(files[values].discard)
                files[values].add(part)
                buffered += part.nbytes
            if buffered > _BUFFERED:
                for writer in files.values():
                    writer.flush()
                buffered = 0
        written = [writer.close() for writer in files.values()]
        on_error.pop_all()
    return sum(file.rows for file in written), json.dumps([asdict(file) for file in written]).encode()


def staged(of_tasks: Iterable[Staged]) -> list[DataFile]:
    """The files that stage() returned."""
    return [DataFile(**file) for text in of_tasks for file in json.loads(text)]


class _Writer:
    """One file that is being written."""

    def __init__(self, partition_values: Mapping[str, str | None], storage: Storage) -> None:
        self._values, self._storage = partition_values, storage
        self._path = f"part-{uuid.uuid4()}.snappy.parquet"
        self._file: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._rows = 0
        self._nulls: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows without the partition columns."""
        self._pending.append(batch)
        self._rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count

    def flush(self) -> None:
        """Writes the rows in memory as one row group."""
        if not self._pending:
            return
        table, self._pending = pa.Table.from_batches(self._pending), []
        if self._parquet is None:
            self._file = self._storage.create(self._path)
        with translating(f"writing {self._path}"):
            if self._parquet is None:
                # Without Arrow's and Spark's own schemas: readers take the table's.
                self._parquet = pq.ParquetWriter(self._file, table.schema.remove_metadata(), store_schema=False)
            self._parquet.write_table(table)

    def close(self) -> DataFile:
        """The file, which is durable."""
        self.flush()
        if self._parquet is None or self._file is None:
            raise JobError(Reason.UNEXPECTED, "a file without rows was written; report this")
        with translating(f"writing {self._path}"):
            self._parquet.close()
        size = self._storage.finish(self._path, self._file)
        nulls = {**self._nulls, **{name: self._rows for name, value in self._values.items() if value is None}}
        return DataFile(self._path, self._values, size, int(time.time() * 1000), self._rows, nulls)

    def discard(self) -> None:
        """Removes the file, as far as that is possible."""
        if self._file is not None:
            self._storage.discard(self._path, self._file)


def split(
    batch: pa.RecordBatch, partition_columns: Sequence[str]
) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """The rows by the values of their partition columns, which are left out."""
    if not batch.num_rows:
        return
    if not partition_columns:
        yield (), batch
        return
    keys = pa.table({name: batch.column(name) for name in partition_columns})
    keys = keys.append_column(_INDEX, pa.array(range(batch.num_rows), pa.int64()))
    groups = keys.group_by(list(partition_columns), use_threads=False).aggregate([(_INDEX, "list")])
    others = batch.select([name for name in batch.schema.names if name not in partition_columns])
    for group in groups.to_pylist():
        values = tuple(_text(name, group[name]) for name in partition_columns)
        yield values, others.take(pa.array(group[f"{_INDEX}_list"], pa.int64()))


def _text(name: str, value: Any) -> str | None:
    """A partition value as the log has it (PROTOCOL.md, "Partition Value Serialization")."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime.date():
            return value.isoformat()
        case "":
            raise JobError(
                Reason.ROW_REFUSED,
                f"the partition column {name!r} is empty text, which Delta reads as null; return NULL or another "
                f"value: NULLIF({name}, '')",
            )
        case _:
            return str(value)
