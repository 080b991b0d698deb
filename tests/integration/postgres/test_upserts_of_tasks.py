"""Tasks that upsert one key, and tables that other transactions lock."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, PostgresSink, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.postgres_connection import connect
from integration.support.postgres import Database
from integration.support.postgres_stores import TABLE, A, Driver, job, rows, with_connection, with_session
from waiting import wait_until

VERSIONED = "CREATE TABLE rows (id bigint PRIMARY KEY, v text, at int NOT NULL)"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def version(value: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"id": pa.array([1], pa.int64()), "v": pa.array([str(value)]), "at": pa.array([value], pa.int32())}
    )


@contextmanager
def open_transaction(spec: JobSpec, statement: str) -> Iterator[None]:
    """A transaction with the statement. It is committed at the end of the context."""
    connection = connect(spec.sink_of(PostgresSink))
    try:
        connection.execute(statement)
        yield
        connection.commit()
    finally:
        connection.close()


def test_a_task_waits_for_another_one_with_the_same_key(database: Database, tmp_path: Path) -> None:
    """For longer than the time in which it gets the locks of positions."""
    database.sql(VERSIONED)
    declared = job(tmp_path, database, upsert=True, key=("id",), version_column="at")
    driver = Driver(with_session(declared, lock_timeout="100"))
    with ThreadPoolExecutor() as pool:
        with open_transaction(declared, "INSERT INTO rows VALUES (1, '2', 2)"):  # as another task merges its rows
            waiting = pool.submit(driver.task().advance, 0, [Range(A, 0, 1)], [version(1)])
            wait_until(lambda: database.sql(WAITING) == [["1"]], "the task waits for the row")
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1)  # ten times as long
        assert waiting.result() == (Outcome.DONE, 1)
    assert database.sql("SELECT v FROM rows") == [["2"]]


def test_the_server_ends_the_wait_for_a_row_that_stays_locked(database: Database, tmp_path: Path) -> None:
    """Before the client does: the server would not notice, and each attempt would leave a session behind."""
    database.sql(VERSIONED)
    declared = job(tmp_path, database, upsert=True, key=("id",), version_column="at")
    driver = Driver(with_connection(declared, response_timeout="3"))
    with (
        open_transaction(declared, "INSERT INTO rows VALUES (1, '2', 2)"),
        pytest.raises(JobError, match=r"has locked rows of table public\.rows for more than 2\.5 s") as caught,
    ):
        driver.task().advance(0, [Range(A, 0, 1)], [version(1)])
    assert caught.value.reason is Reason.TRANSACTION_TIMED_OUT
    wait_until(lambda: database.sql(WAITING) == [["0"]], "nobody waits")
    assert driver.task().advance(0, [Range(A, 0, 1)], [version(3)]) == (Outcome.DONE, 1)


def test_a_table_that_is_locked_against_writers_is_named(database: Database, tmp_path: Path) -> None:
    database.sql(TABLE)
    driver = Driver(with_session(declared := job(tmp_path, database), lock_timeout="100"))
    with (
        open_transaction(declared, "LOCK TABLE rows IN SHARE MODE"),  # as CREATE INDEX does
        pytest.raises(JobError, match=r"another transaction locks table public\.rows against writers") as caught,
    ):
        driver.task().advance(0, [Range(A, 0, 1)], rows(A, 0, 1))
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert driver.task().advance(0, [Range(A, 0, 1)], rows(A, 0, 1)) == (Outcome.DONE, 1)
