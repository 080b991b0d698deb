"""Dead letters on their way from the parsed rows, before the transform, to the sink's transaction, behind it.

    1  keep            a Python function on every parsed row, in a separate worker, appends the malformed ones to a
                       file of the task's attempt, and then passes the rows on
    2  rows            the transform and the sink's rows, as without dead letters
    3  letters         after its last row, the task's other worker reads the file, which is complete then: Spark has
                       passed on each row only after step 1 has returned it. Both are processes of one executor.
    4  commit          rows, dead letters and positions together

Where Spark itself writes the rows (SparkWriter), there is no step 3: step 1 writes the dead letters to the sink and
waits for their acknowledgement. Only at-least-once does that, which moves positions afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Self

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from ackwright_stream import source
from ackwright_stream.dead_letters import described, of_text
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.reasons import REASONS
from ackwright_stream.spark_internals.execution import Execution, metrics_of
from ackwright_stream.worker_state import STATE

# Of a batch's Spark job: Instructions as JSON. None in a run that delivers nothing.
_PROPERTY = "ackwright.dead-letters"
# The fraction is of at least so many records: one malformed record of a short batch says nothing about the schema.
RECENT = 1000
_AT_ONCE = 500  # dead letters in a batch of rows


@dataclass(frozen=True)
class Counts:
    """Records that were read, and those of them that are malformed."""

    records: int = 0
    letters: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.records + other.records, self.letters + other.letters)


@dataclass(frozen=True)
class Instructions:
    """What the tasks of one batch need to know."""

    directory: str | None  # name of the directory for step 3; None: step 1 writes to the sink
    recent: Counts = Counts()  # of the batches before

    def to_json(self) -> str:
        return json.dumps([self.directory, self.recent.records, self.recent.letters])

    @classmethod
    def current(cls) -> Self | None:
        """Those of this task's batch; None in a run that delivers nothing."""
        context = TaskContext.get()
        text = context.getLocalProperty(_PROPERTY) if context else None
        if text is None:
            return None
        directory, records, letters = json.loads(text)
        return cls(directory, Counts(records, letters))


@contextmanager
def instructed(spark: SparkSession, instructions: Instructions | None) -> Iterator[None]:
    """Passes the instructions to the tasks of the Spark jobs that this thread starts meanwhile. None: passes none."""
    if instructions is None:
        yield
        return
    spark.sparkContext.setLocalProperty(_PROPERTY, instructions.to_json())
    try:
        yield
    finally:  # a later job may read the same records and deliver nothing (refused_rows.py)
        spark.sparkContext.setLocalProperty(_PROPERTY, None)


def observed(batch: Execution) -> Counts:
    """What Spark has counted in an executed batch."""
    counts = metrics_of(batch).get(source.METRICS, {})
    return Counts(counts.get("records", 0), counts.get("malformed", 0))


@dataclass
class Window:
    """The latest batches of one query, which have at least RECENT records together, and the directory of its files."""

    directory: str = field(default_factory=lambda: f"ackwright-dead-letters-{secrets.token_hex(8)}")
    _batches: deque[Counts] = field(default_factory=deque)

    @property
    def instructions(self) -> Instructions:
        """For the tasks of the next batch."""
        return Instructions(self.directory, self.counts)

    @property
    def counts(self) -> Counts:
        return sum(self._batches, Counts())

    def add(self, batch: Counts) -> None:
        """Adds a batch, and forgets those before the last RECENT records."""
        self._batches.append(batch)
        while self.counts.records - self._batches[0].records >= RECENT:
            self._batches.popleft()

    def close(self) -> None:
        """Removes what tasks of this machine have left. Executors elsewhere lose their files with their pods."""
        shutil.rmtree(Path(tempfile.gettempdir(), self.directory), ignore_errors=True)


def are_too_many(counts: Counts, recent: Counts, limit: float) -> bool:
    """Whether require_few() raises."""
    both = counts + recent
    return counts.letters > 0 and both.letters > limit * max(both.records, RECENT)


def require_few(counts: Counts, recent: Counts, limit: float, example: str = "in the dead-letter topic") -> None:
    """Raises JobError(TOO_MANY_DEAD_LETTERS) if more than the fraction `limit` of the records is malformed.

    counts: of what is about to be committed. recent: of the batches before. example: one of the malformed records.
    """
    both = counts + recent
    if are_too_many(counts, recent, limit):
        reason = Reason.TOO_MANY_DEAD_LETTERS
        raise JobError(
            reason,
            f"{both.letters} of the last {both.records} records are malformed, more than maxFraction ({limit:g}) of "
            f"{max(both.records, RECENT)}; one is {example}",
            REASONS[reason].remedy,
        )


def require_all(read: Counts, counted: Counts) -> None:
    """Raises JobError(UNEXPECTED) unless the tasks of a batch have read what Spark has counted in step 1.

    Failure window: the file of a task's attempt is gone before step 3, and its dead letters with it. The batch may be
    committed by then, so this only reports what would be lost silently.
    """
    if read != counted:
        raise JobError(
            Reason.UNEXPECTED,
            f"the tasks of a batch wrote {read.letters} dead letters of {read.records} records, and Spark counted "
            f"{counted.letters} of {counted.records}; does a program remove files in the temporary directory of the "
            "executors? ackwright audit counts what is lost",
        )


def keep(job: JobSpec) -> Callable[[Column], Column]:
    """Step 1: whether dead_letters.text_of() is not null, as a column.

    Not deterministic to Spark, so that it runs once for each row and before every filter of the transform.
    """

    def is_letter(letters: pa.Array) -> pa.Array:
        instructions = Instructions.current()
        if instructions is not None:
            _keep(job, instructions, letters)
        return letters.is_valid()

    return F.arrow_udf(is_letter, "boolean").asNondeterministic()  # type: ignore[no-any-return]


def _keep(job: JobSpec, instructions: Instructions, letters: pa.Array) -> None:
    lines = letters.drop_null().to_pylist()
    if instructions.directory is not None:
        _append(_file(instructions.directory), len(letters), lines)
    elif lines:
        STATE.sink(job, transactional=False).write_dead_letters(of_text(lines))


def _file(directory: str) -> Path:
    context = TaskContext.get()
    if context is None:
        raise JobError(Reason.UNEXPECTED, "dead letters are kept outside of a task; report this")
    return Path(tempfile.gettempdir(), directory, str(context.taskAttemptId()))


def _append(file: Path, records: int, lines: list[str]) -> None:
    """A line for each dead letter, and one with the number of records."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(descriptor, "wb") as out:
        out.write("\n".join([*lines, f"{records}\n"]).encode())


@contextmanager
def of_task(job: JobSpec) -> Iterator[TaskLetters]:
    """The dead letters of this task. Its file is removed afterwards."""
    letters = TaskLetters(job)
    try:
        yield letters
    finally:
        letters.close()


class TaskLetters:
    """Steps 3 and 4 in a task: an iterable of its dead letters, which must not be read before its rows have ended."""

    def __init__(self, job: JobSpec) -> None:
        limit, instructions = job.source.dead_letter_fraction, Instructions.current()
        self._limit = limit
        self._recent = instructions.recent if instructions else Counts()
        on = limit is not None and instructions is not None and instructions.directory is not None
        self._file = _file(instructions.directory) if on and instructions and instructions.directory else None
        self.counts = Counts()  # once it was read

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises JobError(TOO_MANY_DEAD_LETTERS) in place of the first one."""
        if self._file is None or self._limit is None or not self._file.exists():  # no record was read
            return
        with self._file.open("rb") as lines:
            self.counts = _counted(lines)
            lines.seek(0)
            letters = (line for line in lines if not line[:1].isdigit())
            first = next(letters, None)
            if first is None:
                return
            require_few(self.counts, self._recent, self._limit, described(of_text([first])))
            batch = [first]
            while batch:
                yield of_text(batch)
                batch = list(islice(letters, _AT_ONCE))

    def close(self) -> None:
        """Removes the file."""
        if self._file is not None:
            with suppress(FileNotFoundError):
                self._file.unlink()


def _counted(lines: Iterator[bytes]) -> Counts:
    records = letters = 0
    for line in lines:
        if line[:1].isdigit():
            records += int(line)
        else:
            letters += 1
    return Counts(records, letters)
