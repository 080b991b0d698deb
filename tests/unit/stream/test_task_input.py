"""A task's rows as Spark's worker reads them, from a connection that ends before they do."""

from __future__ import annotations

import io
import socket
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths, read_int, write_int
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from ackwright_stream.errors import JobError
from ackwright_stream.spark_internals.worker import TaskInput
from ackwright_stream.task_input import require_complete_input

PIECES = 3


def sent(pieces: int, *, end: bool, mark: bool) -> bytes:
    """The bytes that the JVM writes: Arrow's schema, pieces of rows, Arrow's end, Spark's mark."""
    stream = io.BytesIO()
    writer = pa.RecordBatchStreamWriter(stream, pa.schema([("n", pa.int64())]))
    for n in range(pieces):
        writer.write_batch(pa.RecordBatch.from_pydict({"n": [n]}))
    if end:
        writer.close()
    if mark:
        write_int(SpecialLengths.END_OF_STREAM, stream)
    return stream.getvalue()


def read(text: bytes, *, checked: bool = True) -> tuple[list[int], Any]:
    """The rows that a task receives whose connection ends behind the text, and the integer that Spark sends next."""
    jvm, worker = socket.socketpair()
    with worker, worker.makefile("rb") as incoming:
        jvm.sendall(text)
        jvm.close()
        values: list[Any] = []
        connection = TaskInput()

        def main(incoming: Any, _: Any) -> None:
            pieces: Iterator[pa.RecordBatch] = ArrowStreamSerializer().load_stream(incoming)
            for piece in require_complete_input(pieces, connection) if checked else pieces:
                values.extend(piece.column(0).to_pylist())
            values.append(read_int(incoming) if checked else None)

        connection.recording(main)(incoming, None)
    return values[:-1], values[-1]


def test_all_rows_and_the_mark_is_left_for_spark() -> None:
    assert read(sent(PIECES, end=True, mark=True)) == (list(range(PIECES)), SpecialLengths.END_OF_STREAM)
    assert read(sent(0, end=True, mark=True)) == ([], SpecialLengths.END_OF_STREAM)


@pytest.mark.parametrize(
    ("pieces", "end"), [(0, True), *((n, end) for n in range(1, PIECES + 1) for end in (False, True))]
)
def test_rows_that_were_cut_off(pieces: int, *, end: bool) -> None:
    with pytest.raises(JobError, match="cut off"):
        read(sent(pieces, end=end, mark=False))


@pytest.mark.parametrize("pieces", range(1, PIECES))
def test_control_without_the_check_rows_that_were_cut_off_look_like_all_of_them(pieces: int) -> None:
    assert read(sent(pieces, end=False, mark=False), checked=False) == (list(range(pieces)), None)


def test_a_worker_that_cannot_know_begins_nothing() -> None:
    rows = iter([1])
    with pytest.raises(JobError, match=r"spark\.python\.daemon\.module"):
        next(require_complete_input(rows, TaskInput()))
    assert list(rows) == [1]
