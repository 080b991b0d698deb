"""A server that is suspended: it answers nothing, while its kernel acknowledges packets and accepts connections.

Each call then fails within its time limit, and the positions tell what became of it once the server continues. The
control waits for as long as the server is suspended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import sink as postgres_sink
from integration.support.postgres import PASSWORD, Database, Postgres
from integration.support.postgres_stores import (
    TABLE,
    A,
    Driver,
    job,
    offsets,
    position,
    rows,
    with_connection,
    with_session,
)
from waiting import ANSWER, WAIT, wait_until

LIMIT_S = 2
MANY = 400_000  # rows: more bytes than the buffers of two sockets hold
FIRST = [Range(A, 0, 10)]


@pytest.fixture
def server(fragile_postgres: Postgres) -> Iterator[Postgres]:
    """A server that a test may suspend."""
    try:
        yield fragile_postgres
    finally:
        fragile_postgres.resume()


@pytest.fixture
def data(server: Postgres, tmp_path: Path) -> Database:
    """A database of that server with a table `rows`."""
    database = Database(server, tmp_path)
    database.sql(TABLE)
    return database


def limited(database: Database, directory: Path, seconds: float = LIMIT_S) -> JobSpec:
    """A jobspec whose calls to the server may take so long."""
    limits = {"response_timeout": str(seconds), "connect_timeout": str(LIMIT_S)}
    return with_connection(job(directory, database), **limits)


def suspending(server: Postgres, until: int) -> Iterator[Any]:
    """Rows, behind the first of which the server is suspended."""
    yield from rows(A, 0, 5, batch=5)
    server.suspend()
    yield from rows(A, 5, until, batch=10_000)


def at_commit(server: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suspends the server before the next commit of a task."""

    def fault_point(point: str, *_: object) -> None:
        if point == "before-commit":
            server.suspend()

    monkeypatch.setattr(postgres_sink, "fault_point", fault_point)


def not_answered(call: Callable[[], Any], reason: Reason) -> None:
    """Asserts that the call fails for this reason, because the server does not answer."""
    with pytest.raises(
        JobError, match=f"PostgreSQL has not answered within {LIMIT_S} s.*outcome is not known"
    ) as caught:
        call()
    assert caught.value.reason is reason, caught.value


@pytest.mark.parametrize("count", [10, MANY])
def test_frozen_during_copy_nothing_is_written_exactly_once(
    server: Postgres, data: Database, tmp_path: Path, count: int
) -> None:
    """With a few rows the wait is for an answer, with many already for space to send them."""
    driver, all_ = Driver(limited(data, tmp_path)), [Range(A, 0, count)]
    not_answered(lambda: driver.task().advance(0, all_, suspending(server, count)), Reason.TRANSACTION_TIMED_OUT)
    with pytest.raises(JobError, match="check the sink's address") as caught:  # also a new connection
        Driver(driver.lanes.job)
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    server.resume()
    wait_until(lambda: position(data) == 0, "the server answers")
    assert offsets(data) == []
    assert driver.task().advance(0, FIRST, rows(A, 0, 10)) == (Outcome.DONE, 10)
    assert (offsets(data), position(data)) == (list(range(10)), 10)


def advance_twice(driver: Driver, server: Postgres, monkeypatch: pytest.MonkeyPatch, *, count: int) -> None:
    """Advances with so many rows. The server is suspended before the first commit, and continues before the second."""
    with monkeypatch.context() as patch:
        at_commit(server, patch)
        not_answered(lambda: driver.task().advance(0, FIRST, rows(A, 0, count)), Reason.SINK_UNREACHABLE)
    server.resume()  # it may read the COMMIT, and commit for a client that is gone
    outcome, _ = driver.task().advance(0, FIRST, rows(A, 0, count))
    assert outcome in (Outcome.SKIPPED, Outcome.DONE)


def test_frozen_before_the_commit_the_next_attempt_reads_the_positions_exactly_once(
    server: Postgres, data: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance_twice(Driver(limited(data, tmp_path)), server, monkeypatch, count=10)
    assert (offsets(data), position(data)) == (list(range(10)), 10)


def test_frozen_before_the_commit_of_a_claim_its_rows_are_not_written_at_most_once(
    server: Postgres, data: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance_twice(Driver(limited(data, tmp_path)), server, monkeypatch, count=0)
    assert (offsets(data), position(data)) == ([], 10)


def test_frozen_while_rows_are_written_the_position_stays_at_least_once(
    server: Postgres, data: Database, tmp_path: Path
) -> None:
    driver = Driver(limited(data, tmp_path))
    write = partial(driver.task().sink.write, [A], membership=driver.membership)
    not_answered(lambda: write(suspending(server, 10)), Reason.TRANSACTION_TIMED_OUT)
    server.resume()
    assert write(rows(A, 0, 10)) == 10
    driver.lanes.advance_all([Range(A, 0, 10)])
    assert (offsets(data), position(data)) == (list(range(10)), 10)


@pytest.mark.parametrize("limit_s", [2 * LIMIT_S, 3600])
def test_frozen_while_it_waits_for_a_lock_a_task_ends_only_with_the_limit(
    server: Postgres, data: Database, tmp_path: Path, limit_s: int
) -> None:
    """Without the limit, the control, it waits for as long as the server is suspended."""
    driver = Driver(with_session(limited(data, tmp_path, limit_s), lock_timeout="0"))
    ended: list[Any] = []

    def advance() -> None:
        try:
            ended.append(driver.task().advance(0, FIRST, rows(A, 0, 10)))
        except JobError as e:
            ended.append(e.reason)

    login = f"host={server.host} port={server.port} dbname={data.name} user={data.role} password={PASSWORD}"
    with psycopg.connect(login) as holder:
        holder.execute("SELECT FROM ackwright.positions FOR UPDATE")
        task = threading.Thread(target=advance, daemon=True)
        task.start()
        waits = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        wait_until(lambda: data.sql(f"{waits} AND datname = '{data.name}'", admin=True), "the task waits")
        server.suspend()
        task.join(4 * LIMIT_S if limit_s == 3600 else ANSWER)
        assert ended == ([] if limit_s == 3600 else [Reason.SINK_UNREACHABLE])
        server.resume()
        holder.rollback()
    task.join(ANSWER)
    if limit_s == 3600:
        assert ended == [(Outcome.DONE, 10)]
    else:
        assert driver.task().advance(0, FIRST, rows(A, 0, 10)) == (Outcome.DONE, 10)
    assert (offsets(data), position(data)) == (list(range(10)), 10)


def test_control_without_the_limit_a_task_waits_for_as_long_as_the_server_is_frozen(
    server: Postgres, data: Database, tmp_path: Path
) -> None:
    driver, ended = Driver(limited(data, tmp_path, 3600)), threading.Event()

    def advance() -> None:
        driver.task().advance(0, FIRST, suspending(server, 10))
        ended.set()

    task = threading.Thread(target=advance, daemon=True)
    task.start()
    assert not ended.wait(3 * LIMIT_S)
    server.resume()
    assert ended.wait(WAIT)
    assert (offsets(data), position(data)) == (list(range(10)), 10)
