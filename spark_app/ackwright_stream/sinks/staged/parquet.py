"""Parquet files of rows, which tasks write and the driver's commit makes part of a table.

Their names are new ones. A file that is never committed is in no version of the table, so no reader sees it.
"""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.parquet_columns import encoding, require_utf8
from ackwright_stream.storage_errors import translating

_BUFFERED = 64 << 20  # bytes of rows in memory, of all files together, before they are written as row groups
# Files of a task at once; a file is open from its first row group on. In a bucket each keeps up to 5 MB of its upload
# in memory, and an executor's memory overhead is 384 MB or more.
_OPEN = 32
_INDEX = "__ackwright_index"

# A value of the partition column of this name, as the table's metadata has it. Raises JobError(ROW_REFUSED).
ToPartition = Callable[[str, Any], Any]


class Files(Protocol):
    """Where files are written. Every method raises JobError."""

    def create(self, path: str) -> BinaryIO:
        """A new file to write to."""
        ...

    def finish(self, path: str, file: BinaryIO) -> int:
        """Makes the file durable under its path, and closes it; returns its size in bytes."""
        ...

    def discard(self, path: str, file: BinaryIO) -> None:
        """Removes the file, as far as that is possible. Raises nothing."""
        ...


class InMemory:
    """Files that nobody keeps, as in Files: rows are only tried."""

    def create(self, path: str) -> BinaryIO:
        return io.BytesIO()

    def finish(self, path: str, file: BinaryIO) -> int:
        return file.tell()

    def discard(self, path: str, file: BinaryIO) -> None:
        file.close()


@dataclass(frozen=True)
class FileFormat:
    """How a kind of table has its rows in Parquet."""

    to_partition: ToPartition
    keeps_partitions: bool  # whether files have the partition columns as well
    to_path: Callable[[str], str] = lambda name: name  # of a file with this name
    to_columns: Callable[[pa.Table], pa.Table] = lambda rows: rows  # with the types of the files
    # Raises JobError(ROW_REFUSED) for a file that the table's own metadata cannot describe.
    require_described: Callable[[pq.FileMetaData], object] = lambda metadata: None
    # Of pq.ParquetWriter. Without Arrow's and Spark's own schemas: readers take the table's.
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Written:
    """A durable file with rows."""

    path: str
    partition: Mapping[str, Any]  # the values of ToPartition by column
    size: int  # bytes
    rows: int
    nulls: Mapping[str, int]  # by column
    metadata: pq.FileMetaData


def write(rows: Rows, partition_columns: Sequence[str], files: Files, form: FileFormat) -> list[Written]:
    """Writes the rows to new files, one for each combination of partition values, or several if these are many.

    Raises JobError, ROW_REFUSED for text that is not UTF-8; then the files are removed, if that is possible.
    """
    writers: dict[tuple[Any, ...], _Writer] = {}  # by partition values
    written: list[Written] = []
    buffered = 0
    with ExitStack() as on_error:
        for batch in rows:
            require_utf8(batch)
            for values, part in split(batch, partition_columns, form.to_partition, keep=form.keeps_partitions):
                if values not in writers:
                    writers[values] = _Writer(dict(zip(partition_columns, values, strict=True)), files, form)
                    on_error.callback(writers[values].discard)
                writers[values].add(part)
                buffered += part.nbytes
            if buffered > _BUFFERED:
                written += _flush(writers)
                buffered = 0
        written += [writer.close() for writer in writers.values()]
        on_error.pop_all()
    return written


def _flush(writers: dict[tuple[Any, ...], _Writer]) -> list[Written]:
    """Writes the rows in memory to their files; returns the files that it closes, and removes their writers.

    If more files than _OPEN would be open, the largest is closed: later rows with its values begin a new one.
    """
    opened = {values: writer for values, writer in writers.items() if writer.is_open}
    for writer in opened.values():
        writer.flush()
    closed = []
    for values, writer in list(writers.items()):
        if not writer.is_open:
            if len(opened) >= _OPEN:
                largest = max(opened, key=lambda values: opened[values].rows)
                closed.append(opened.pop(largest).close())
                del writers[largest]
            writer.flush()
            opened[values] = writer
    return closed


class _Writer:
    """One file that is being written."""

    def __init__(self, partition: Mapping[str, Any], files: Files, form: FileFormat) -> None:
        self._partition, self._files, self._form = partition, files, form
        self._path = form.to_path(f"part-{uuid.uuid4()}.parquet")
        self._file: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self.rows = 0
        self._nulls: dict[str, int] = {}

    @property
    def is_open(self) -> bool:
        """Whether it has written rows to its file."""
        return self._file is not None

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows, as split() returned them."""
        self._pending.append(batch)
        self.rows += batch.num_rows
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            self._nulls[name] = self._nulls.get(name, 0) + column.null_count

    def flush(self) -> None:
        """Writes the rows in memory as one row group."""
        if not self._pending:
            return
        with encoding():
            table, self._pending = self._form.to_columns(pa.Table.from_batches(self._pending)), []
        if self._parquet is None:
            self._file = self._files.create(self._path)
        with translating(f"writing {self._path}"), encoding():
            if self._parquet is None:
                self._parquet = pq.ParquetWriter(
                    self._file,
                    table.schema.remove_metadata(),
                    store_schema=False,
                    **self._form.options,
                )
            self._parquet.write_table(table)

    def close(self) -> Written:
        """The file, which is durable."""
        self.flush()
        if self._parquet is None or self._file is None:
            raise JobError(Reason.UNEXPECTED, "a file without rows was written; report this")
        with translating(f"writing {self._path}"):
            self._parquet.close()
        size = self._files.finish(self._path, self._file)
        nulls = {name: self.rows for name, value in self._partition.items() if value is None}
        metadata = self._parquet.writer.metadata
        return Written(self._path, self._partition, size, self.rows, self._nulls | nulls, metadata)

    def discard(self) -> None:
        """Removes the file, as far as that is possible."""
        if self._parquet is not None:
            with suppress(Exception):
                self._parquet.close()  # or the writer does it later, to a file that is closed
        if self._file is not None:
            self._files.discard(self._path, self._file)


def split(
    batch: pa.RecordBatch, partition_columns: Sequence[str], to_partition: ToPartition, *, keep: bool = False
) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The rows by the values of their partition columns. keep: whether the rows have these columns."""
    if not batch.num_rows:
        return
    if not partition_columns:
        yield (), batch
        return
    # By numbers, because group_by() takes a name that begins with a dot or a bracket for a path.
    numbers = [str(n) for n in range(len(partition_columns))]
    keys = pa.table({n: batch.column(name) for n, name in zip(numbers, partition_columns, strict=True)})
    keys = keys.append_column(_INDEX, pa.array(range(batch.num_rows), pa.int64()))
    groups = keys.group_by(numbers, use_threads=False).aggregate([(_INDEX, "list")])
    rows = batch if keep else batch.select([name for name in batch.schema.names if name not in partition_columns])
    with encoding(f"rows cannot be partitioned by {', '.join(partition_columns)}"):
        values_of_groups = groups.to_pylist()
    for group in values_of_groups:
        values = tuple(to_partition(name, group[n]) for n, name in zip(numbers, partition_columns, strict=True))
        yield values, rows.take(pa.array(group[f"{_INDEX}_list"], pa.int64()))
