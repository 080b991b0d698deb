"""The Parquet file of a batch of a stateful pipeline is written as its rows come."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ackwright_stream.sinks.files import rows
from ackwright_stream.sinks.files.rows import RowFile
from ackwright_stream.sinks.files.storage import Directory

ROWS = pa.RecordBatch.from_pydict({"key": ["a" * 50, "b" * 50]})


def test_rows_are_written_before_many_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_BUFFERED", 3 * ROWS.nbytes)
    storage = Directory(tmp_path)
    file = RowFile(storage)
    for _ in range(10):
        file.add(ROWS)
        assert sum(batch.nbytes for batch in file._pending) <= 3 * ROWS.nbytes
    assert storage.create("rows.parquet", file.finish(ROWS.schema, {}))
    written = pq.ParquetFile(tmp_path / "rows.parquet")
    assert (written.num_row_groups, written.read()["key"].to_pylist()) == (3, ROWS["key"].to_pylist() * 10)
