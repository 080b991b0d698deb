"""The job's sink: the proof that a new sink needs no change of the job.

A transaction compares the number of the membership, which fences older drivers, and the positions that it has read,
which fences earlier attempts of its task. Both happen in the transaction that inserts the rows.

Run as a program, it is the job with this sink registered.
"""

from __future__ import annotations

import runpy
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.positions import SOURCE, UNMERGED, Lane, Position
from ackwright_stream.sinks.base import Membership, Owner, Records, Rows
from sqlite import columns
from sqlite.jobspec import SqliteSpec

_LOCK_S = 60.0  # to wait for another connection's transaction
_SCHEMA = """
CREATE TABLE positions (
    topic TEXT, partition INT, "offset" INT, topic_id TEXT, driver INT, PRIMARY KEY (topic, partition)
);
CREATE TABLE lanes (topic TEXT, partition INT, topic_id TEXT, start INT, PRIMARY KEY (topic, partition));
CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, partition INT, key BLOB, value BLOB);
CREATE TABLE membership (number INT);
INSERT INTO membership VALUES (0);
"""


def create(path: str) -> None:
    """Creates the database."""
    with _connection(path) as db:
        db.executescript(_SCHEMA)


def rows(path: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Source partition, key and value of each row, in the order in which they were inserted."""
    with _connection(path) as db:
        return list(db.execute("SELECT partition, key, value FROM rows ORDER BY id"))


def execute(path: str, statement: str) -> None:
    """Changes the database behind the job's back."""
    with _connection(path) as db:
        db.execute(statement)


def is_locked(path: str) -> bool:
    """Whether a process holds a lock on the database now."""
    db = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        db.execute("BEGIN EXCLUSIVE")
        db.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True
    finally:
        db.close()


class SqliteSink:
    """The sink of one pipeline, for any number of threads and processes: it opens a connection for each step."""

    supports = frozenset(Guarantee)
    topics = ()
    spark_writer = None
    takes_dead_letters = False
    staging = None
    decisions = None

    def __init__(self, job: JobSpec) -> None:
        self.spec = job.sink_of(SqliteSpec)
        self._membership: Membership | None = None

    def check(self, rows: DataFrame | None = None) -> None:
        self.read([])

    def require_permission(self) -> None:
        return  # check() opens the database to write

    def require_sole_use(self) -> None:
        return

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        return columns.to_sink_columns(output)

    def prepare(self, rows: DataFrame) -> None:
        return

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        return rows.withColumn(UNMERGED, F.spark_partition_id())

    def join(self, lanes: Iterable[Lane]) -> Membership:
        with self.connection() as db:
            db.execute("UPDATE membership SET number = number + 1")
            self._membership = _membership(db)
        return self._membership

    def is_member(self) -> bool:
        with self.connection() as db:
            return not self.spec.compare or self._membership == _membership(db)

    def member(self) -> str | None:
        return self._membership.decode() if self._membership else None

    def announce(self, address: str) -> None:
        return

    def owner(self) -> Owner | None:
        return None  # it does not know which drivers live

    def open(self, slot: int, lanes: Sequence[Lane], membership: Membership) -> SqliteTransaction:
        return SqliteTransaction(self, self.read(lanes), membership)

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        with self.connection() as db:
            positions = stored(db)
        return {lane: positions.get(lane) for lane in lanes}

    def peek(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        return self.read(lanes)

    def stop(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        return  # positions do not expire here

    def records(self) -> Records:
        with self.connection() as db:
            rows = db.execute("SELECT topic, partition, topic_id FROM lanes")
            return Records({Lane(topic, partition): topic_id for topic, partition, topic_id in rows})

    def settle(
        self,
        positions: Mapping[Lane, Position],
        records: Mapping[Lane, Mapping[str, Any] | None],
        membership: Membership,
        *,
        accepted: str | None = None,
    ) -> None:
        with self.moving(membership) as db:
            for lane, position in positions.items():
                move(db, lane, position)
            for lane in records:
                record = (lane.topic, lane.partition, positions[lane].topic_id, positions[lane].offset)
                db.execute("INSERT OR REPLACE INTO lanes VALUES (?, ?, ?, ?)", record)

    def advance(self, positions: Mapping[Lane, Position], membership: Membership) -> None:
        with self.moving(membership) as db:
            for lane, position in positions.items():
                move(db, lane, position)

    def write(self, lanes: Sequence[Lane], rows: Rows, letters: Rows = (), *, membership: Membership) -> int:
        batches = list(rows)
        with self.connection() as db:
            return insert(db, batches)

    def write_dead_letters(self, letters: Any) -> None:
        raise JobError(Reason.UNEXPECTED, "this sink has no dead letters")

    def trial(self) -> None:
        return None

    def output_ends(self) -> Mapping[str, Any]:
        return {}

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which ends with a commit, or with a roll-back if an error is raised. Raises JobError for
        errors of SQLite."""
        try:
            with _connection(self.spec.path) as db:
                yield db
        except sqlite3.Error as e:
            raise JobError(Reason.BATCH_FAILED, f"{self.spec.path}: {e}; see the database") from e

    @contextmanager
    def moving(
        self, membership: Membership, current: Mapping[Lane, Position | None] | None = None
    ) -> Iterator[sqlite3.Connection]:
        """A transaction that may move positions. current: the positions that must not have changed since.

        Raises JobError(POSITION_CONFLICT) if another driver has joined, or one of them has changed.
        """
        with self.connection() as db:
            db.execute("BEGIN IMMEDIATE")
            if self.spec.compare and membership != _membership(db):
                raise JobError(Reason.POSITION_CONFLICT, "another driver has joined; it owns the pipeline")
            before = stored(db)
            if self.spec.compare and any(before.get(lane) != position for lane, position in (current or {}).items()):
                raise JobError(Reason.POSITION_CONFLICT, "a position has moved; another attempt of the task was faster")
            yield db


class SqliteTransaction:
    """Positions as they were read, to be compared at the commit."""

    def __init__(self, sink: SqliteSink, positions: Mapping[Lane, Position | None], membership: Membership) -> None:
        self._sink, self.positions, self._membership = sink, positions, membership

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = (), letters: Rows = ()) -> int:
        batches = list(rows)  # first, so that no lock is held while Spark computes them
        with self._sink.moving(self._membership, self.positions) as db:
            for lane, position in positions.items():
                move(db, lane, position)
            written = insert(db, batches)
            fault_point("before-commit", *positions)
        fault_point("after-commit", *positions)
        return written

    def release(self) -> None:
        return


def stored(db: sqlite3.Connection) -> dict[Lane, Position | None]:
    """All positions."""
    return {
        Lane(topic, partition): Position(*position)
        for topic, partition, *position in db.execute("SELECT * FROM positions")
    }


def move(db: sqlite3.Connection, lane: Lane, position: Position) -> None:
    """Sets one position."""
    row = (lane.topic, lane.partition, position.offset, position.topic_id, position.driver)
    db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)", row)


def insert(db: sqlite3.Connection, rows: Rows) -> int:
    """Inserts the rows; returns their number."""
    written = 0
    for batch in rows:
        columns = [batch.column(name).to_pylist() for name in (SOURCE, "key", "value")]
        db.executemany("INSERT INTO rows (partition, key, value) VALUES (?, ?, ?)", zip(*columns, strict=True))
        written += batch.num_rows
    return written


def _membership(db: sqlite3.Connection) -> Membership:
    """What the latest join returned."""
    ((number,),) = db.execute("SELECT number FROM membership")
    return str(number).encode()


@contextmanager
def _connection(path: str) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, timeout=_LOCK_S)
    try:
        with db:
            yield db
    finally:
        db.close()


if __name__ == "__main__":
    runpy.run_module("ackwright_stream", run_name="__main__")
