"""How the driver gets rows from tasks: each answers with pieces of its rows, or with the files that have them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from ackwright_stream import encoded_output
from ackwright_stream.encoded_output import Piece, files_of
from ackwright_stream.jobspec import StateSettings
from ackwright_stream.spark_internals.arrow import spark_schema
from ackwright_stream.task_input import require_complete_input
from ackwright_stream.worker_state import STATE

_ANSWER = pa.schema(
    [
        ("task", pa.int32()),
        ("piece", pa.int32()),  # its number in the task
        ("records", pa.int64()),
        ("hash", pa.binary()),
        ("digest", pa.binary()),
        ("rows", pa.binary()),  # as Piece.content; null: in the file
        ("file", pa.string()),
    ]
)
ANSWER = spark_schema(_ANSWER)
_NOTHING = Piece(0, b"", b"", None)  # the answer of a task without rows


class Gathered(NamedTuple):
    """What tasks have answered."""

    pieces: list[Piece]  # in the order of the tasks' numbers
    tasks: int


def answers(
    settings: StateSettings, driver: int, tasks: int, rows: Iterator[pa.RecordBatch], *, compared: bool = True
) -> Iterator[pa.RecordBatch]:
    """What a task answers for its rows. In the task. tasks: how many share the memory of settings.batch_bytes.

    driver: its number. compared: as for encoded_output.encode(). Raises JobError if the rows cannot be stored.
    """
    context = TaskContext.get()
    task = context.partitionId() if context else 0
    memory = settings.batch_bytes // tasks  # no task knows how much the others have
    rows = require_complete_input(rows, STATE.input)
    number = -1
    pieces = encoded_output.encode(rows, memory, driver, partial(files_of, settings), compared=compared)
    for number, piece in enumerate(pieces):
        yield _answer(task, number, piece)
    if number < 0:
        yield _answer(task, 0, _NOTHING)


def gather(frame: DataFrame) -> Gathered:
    """Runs a frame whose tasks are answers(); this is its one action. Raises what a task has raised."""
    of_tasks = frame.toArrow().sort_by([("task", "ascending"), ("piece", "ascending")]).to_pylist()
    pieces = [
        Piece(answer["records"], answer["hash"], answer["digest"], answer["rows"], answer["file"])
        for answer in of_tasks
        if answer["hash"]
    ]
    return Gathered(pieces, sum(answer["piece"] == 0 for answer in of_tasks))


def _answer(task: int, number: int, piece: Piece) -> pa.RecordBatch:
    values = (task, number, piece.records, piece.hash, piece.digest, piece.content, piece.file)
    return pa.RecordBatch.from_pylist([dict(zip(_ANSWER.names, values, strict=True))], schema=_ANSWER)
