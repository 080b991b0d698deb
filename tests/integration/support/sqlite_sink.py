"""A sink that keeps rows and positions in one SQLite database: the proof that a new sink needs no change of the job.

A position moves by compare-and-set in the transaction that inserts the rows. That alone makes exactly-once safe;
nothing is fenced.

Run as a program, it is the job with this sink registered.
"""

from __future__ import annotations

import importlib
import runpy
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ackwright_stream.cluster import Cluster
from ackwright_stream.errors import JobError
from ackwright_stream.fault_points import fault_point
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.positions import Lane, Position
from ackwright_stream.sinks import registry
from ackwright_stream.sinks.base import Rows

_LOCK_S = 60.0  # to wait for another connection's transaction
_SCHEMA = """
CREATE TABLE positions (
    topic TEXT, partition INT, "offset" INT, topic_id TEXT, driver INT, PRIMARY KEY (topic, partition)
);
CREATE TABLE lanes (topic TEXT, partition INT, topic_id TEXT, PRIMARY KEY (topic, partition));
CREATE TABLE rows (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT, partition INT, key BLOB, value BLOB);
"""


@dataclass(frozen=True)
class SqliteSpec:
    """A database file that create() made."""

    path: str
    compare: bool = True  # False is the negative control: positions are set, whatever they were
    kind: str = field(default="sqlite", init=False)

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value["path"], value["compare"])


def create(path: str) -> None:
    """Creates the database."""
    with _connection(path) as db:
        db.executescript(_SCHEMA)


def rows(path: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Source partition, key and value of each row, in the order in which they were inserted."""
    with _connection(path) as db:
        return list(db.execute("SELECT partition, key, value FROM rows ORDER BY id"))


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

    def __init__(self, job: JobSpec) -> None:
        spec: Any = job.sink
        self.spec: SqliteSpec = spec

    def check(self) -> None:
        self.read([])

    def require_sole_use(self) -> None:
        return

    def to_sink_columns(self, output: DataFrame) -> DataFrame:
        if set(output.columns) != {"key", "value"}:
            raise JobError(Reason.INVALID_TRANSFORM, f"the columns are {output.columns}; select key and value")
        return output.select(F.col("key").cast("binary"), F.col("value").cast("binary"))

    def worker_columns(self, rows: DataFrame) -> DataFrame:
        return rows

    def fence_drivers(self) -> None:
        return

    def open(self, lanes: Sequence[Lane]) -> SqliteTransaction:
        return SqliteTransaction(self, self.read(lanes))

    def read(self, lanes: Iterable[Lane]) -> Mapping[Lane, Position | None]:
        with self.connection() as db:
            stored = {
                Lane(topic, partition): Position(*position)
                for topic, partition, *position in db.execute("SELECT * FROM positions")
            }
        return {lane: stored.get(lane) for lane in lanes}

    def recorded_lanes(self) -> Mapping[Lane, str]:
        with self.connection() as db:
            return {
                Lane(topic, partition): topic_id for topic, partition, topic_id in db.execute("SELECT * FROM lanes")
            }

    def advance(self, positions: Mapping[Lane, Position]) -> None:
        current = self.read(positions)
        with self.connection() as db:
            for lane, position in positions.items():
                self.compare_and_set(db, lane, current[lane], position)

    def write(self, lane: Lane, rows: Rows) -> int:
        with self.connection() as db:
            return insert(db, lane, rows)

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

    def compare_and_set(self, db: sqlite3.Connection, lane: Lane, current: Position | None, new: Position) -> None:
        """Moves one position if it is still the current one. Raises JobError(POSITION_CONFLICT)."""
        changed = (new.offset, new.topic_id, new.driver)
        at = (lane.topic, lane.partition)
        if current is None:
            done = db.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?, ?)", (*at, *changed))
        else:
            unchanged = 'AND "offset" = ? AND driver = ?' if self.spec.compare else ""
            move = 'UPDATE positions SET "offset" = ?, topic_id = ?, driver = ? WHERE topic = ? AND partition = ?'
            done = db.execute(
                f"{move} {unchanged}",
                (*changed, *at, *((current.offset, current.driver) if self.spec.compare else ())),
            )
        if done.rowcount != 1:
            raise JobError(Reason.POSITION_CONFLICT, f"the position of lane {lane} has moved; another driver owns it")


class SqliteTransaction:
    """Positions as they were read, to be compared at the commit."""

    def __init__(self, sink: SqliteSink, positions: Mapping[Lane, Position | None]) -> None:
        self._sink, self.positions = sink, positions

    def commit(self, positions: Mapping[Lane, Position], rows: Rows = ()) -> int:
        (lane,) = positions
        batches = list(rows)  # first, so that no lock is held while Spark computes them
        with self._sink.connection() as db:
            self._sink.compare_and_set(db, lane, self.positions[lane], positions[lane])
            written = insert(db, lane, batches)
            fault_point("before-commit", lane)
        fault_point("after-commit", lane)
        return written

    def initialise(self, positions: Mapping[Lane, Position], output_ends: Mapping[str, Any] | None = None) -> None:
        with self._sink.connection() as db:
            for lane, position in positions.items():
                self._sink.compare_and_set(db, lane, self.positions[lane], position)
                db.execute(
                    "INSERT OR REPLACE INTO lanes VALUES (?, ?, ?)", (lane.topic, lane.partition, position.topic_id)
                )

    def release(self) -> None:
        return


def insert(db: sqlite3.Connection, lane: Lane, rows: Rows) -> int:
    """Inserts the rows; returns their number."""
    written = 0
    for batch in rows:
        columns = (batch.column("key").to_pylist(), batch.column("value").to_pylist())
        db.executemany(
            "INSERT INTO rows (topic, partition, key, value) VALUES (?, ?, ?, ?)",
            [(lane.topic, lane.partition, key, value) for key, value in zip(*columns, strict=True)],
        )
        written += batch.num_rows
    return written


@contextmanager
def _connection(path: str) -> Iterator[sqlite3.Connection]:
    db = sqlite3.connect(path, timeout=_LOCK_S)
    try:
        with db:
            yield db
    finally:
        db.close()


def _for_driver(job: JobSpec, cluster: Cluster | None) -> SqliteSink:
    return SqliteSink(job)


def _for_tasks(job: JobSpec, *, transactional: bool) -> SqliteSink:
    return SqliteSink(job)


registry.register(SqliteSpec, registry.Factory(_for_driver, _for_tasks))

if __name__ == "__main__":
    importlib.import_module(__spec__.name)  # registers the sink under the name by which workers import it
    runpy.run_module("ackwright_stream", run_name="__main__")
