"""The rows of a task as Parquet files, one for each of its lanes, before they have their names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ackwright_stream.positions import LANE, Lane
from ackwright_stream.sinks.base import Rows
from ackwright_stream.sinks.files.storage import Draft, Storage
from ackwright_stream.sinks.parquet_columns import encoding, require_utf8
from ackwright_stream.storage_errors import translating

_BUFFERED = 64 << 20  # bytes of rows in memory, of all files together, before they are written as row groups


class RowFiles:
    """The files of one task. A context manager, which removes the files that were not finished."""

    def __init__(self, storage: Storage, lanes: Sequence[Lane]) -> None:
        """lanes: those of the task, in its order."""
        self._storage, self._lanes = storage, lanes
        self._files: dict[Lane, RowFile] = {}

    def __enter__(self) -> RowFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for file in self._files.values():
            file.discard()

    @property
    def lanes(self) -> Sequence[Lane]:
        """The lanes that have rows."""
        return [lane for lane in self._lanes if lane in self._files]

    def write(self, rows: Rows) -> None:
        """Writes the rows, each to the file of its lane. Raises JobError(ROW_REFUSED) for text that is not UTF-8."""
        buffered = 0
        for batch in rows:
            for lane, part in split(batch, self._lanes):
                if lane not in self._files:
                    self._files[lane] = RowFile(self._storage)
                self._files[lane].add(part)
                buffered += part.nbytes
            if buffered > _BUFFERED:
                for file in self._files.values():
                    file.flush()
                buffered = 0

    def finished(self, lane: Lane, columns: pa.Schema, metadata: Mapping[str, str]) -> Draft:
        """The lane's file with this metadata, complete. columns: of a file without rows."""
        file = self._files[lane] = self._files.get(lane) or RowFile(self._storage)
        return file.finish(columns, metadata)

    def rows(self, lane: Lane) -> int:
        """The number of the lane's rows."""
        return self._files[lane].rows if lane in self._files else 0


class Drafts(Protocol):
    """Where a file is before it has its name. As in Storage."""

    def draft(self) -> Draft: ...
    def discard(self, draft: Draft) -> None: ...


class RowFile:
    """One file, which has no name yet."""

    def __init__(self, storage: Drafts) -> None:
        self._storage, self._draft = storage, storage.draft()
        self._parquet: pq.ParquetWriter | None = None
        self._pending: list[pa.RecordBatch] = []
        self._buffered = 0  # bytes of these rows
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Takes rows. Raises JobError(ROW_REFUSED) for text that is not UTF-8."""
        require_utf8(batch)
        self._pending.append(batch)
        self._buffered += batch.nbytes
        self.rows += batch.num_rows
        if self._buffered > _BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Writes the rows in memory as one row group."""
        if self._pending:
            table, self._pending, self._buffered = pa.Table.from_batches(self._pending), [], 0
            with translating("writing a file"), encoding():
                table = table.cast(_nullable(table.schema))
                self._writer(table.schema).write_table(table)

    def finish(self, columns: pa.Schema, metadata: Mapping[str, str]) -> Draft:
        """The complete file. columns: of a file without rows."""
        self.flush()
        with translating("writing a file"):
            writer = self._writer(columns)
            writer.add_key_value_metadata(metadata)
            writer.close()
        return self._draft

    def discard(self) -> None:
        """Removes it, unless it has its name. Raises nothing."""
        if self._parquet is not None:
            with suppress(Exception):
                self._parquet.close()  # or the writer does it later, to a file that is closed
        self._storage.discard(self._draft)

    def _writer(self, columns: pa.Schema) -> pq.ParquetWriter:
        if self._parquet is None:
            # Without Arrow's and Spark's own schemas: readers take that of Parquet.
            self._parquet = pq.ParquetWriter(self._draft.file, _nullable(columns), store_schema=False)
        return self._parquet


def _nullable(columns: pa.Schema) -> pa.Schema:
    """The columns as every file has them: a later file may have null where this one has none."""
    return pa.schema([column.with_nullable(True).remove_metadata() for column in columns])


def split(batch: pa.RecordBatch, lanes: Sequence[Lane]) -> Iterator[tuple[Lane, pa.RecordBatch]]:
    """The rows by their lanes, without the column LANE, which has the numbers of the lanes."""
    if not batch.num_rows:
        return
    numbers = batch.column(LANE)
    rows = batch.drop_columns([LANE])
    present = pc.unique(numbers).to_pylist()
    for number in present:
        yield lanes[number], rows if len(present) == 1 else rows.filter(pc.equal(numbers, number))
