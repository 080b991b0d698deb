"""Positions and rows in a real PostgreSQL: fencing, zombies, unknown outcomes. psql reads what is there.

The control reads positions without locks: what the tests call exactly-once must then not be so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database
from integration.support.postgres_stores import A, B, Driver, job, offsets, position, rows, with_session
from waiting import ANSWER, WAIT, wait_until

pytestmark = pytest.mark.usefixtures("rows_table")


def test_rows_and_positions_change_together(database: Database, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, database), [A, B])
    ranges = [Range(A, 0, 250), Range(B, 0, 10)]
    both = [*rows(A, 0, 250), *rows(B, 0, 10)]
    assert driver.task().advance(0, ranges, both) == (Outcome.DONE, 260)
    assert driver.task().advance(0, ranges, both) == (Outcome.SKIPPED, 0)
    assert (offsets(database, A), offsets(database, B)) == (list(range(250)), list(range(10)))
    assert (position(database, A), position(database, B)) == (250, 10)
    assert driver.sink.records().lanes == {A: "topic-id", B: "topic-id"}


def test_a_lane_of_a_topic_that_was_recreated_is_recorded_as_such(database: Database, tmp_path: Path) -> None:
    """The audit cannot judge the rows of the old topic."""
    driver = Driver(job(tmp_path, database), [A, B])
    driver.lanes.settle({A: 3, B: 0}, [A, B], {}, ())
    driver.lanes.settle({A: 3}, [A], {}, ["in"])
    driver.lanes.settle({A: 3}, [A], None, ())
    stored = database.sql("SELECT partition, first_offset, recreated FROM ackwright.positions ORDER BY partition")
    assert stored == [["0", "3", "t"], ["1", "0", "f"]]


def test_an_error_of_the_rows_leaves_nothing(database: Database, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, database))

    def broken() -> Iterator[Any]:
        yield from rows(A, 0, 10)
        raise JobError(Reason.MALFORMED_RECORD, "the last one")

    with pytest.raises(JobError, match="the last one"):
        driver.task().advance(0, [Range(A, 0, 20)], broken())
    assert (offsets(database), position(database)) == ([], 0)


class Paused:
    """A task in another thread, which stops in the middle of its rows until release()."""

    def __init__(self, driver: Driver, batch: Range, slot: int = 0) -> None:
        self.outcome: Any = None
        self._arrived, self._release = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(driver.task(), batch, slot), daemon=True)
        self._thread.start()
        wait_until(lambda: self._arrived.is_set() or self.outcome, "the task has begun")

    def _run(self, task: Any, batch: Range, slot: int) -> None:
        def slow() -> Iterator[Any]:
            for i, part in enumerate(rows(batch.lane, batch.start, batch.until, batch=1)):
                yield part
                if i == 0:
                    self._arrived.set()
                    self._release.wait(WAIT)

        try:
            self.outcome = task.advance(slot, [batch], slow())
        except JobError as e:
            self.outcome = e

    def release(self) -> Any:
        """What became of the task."""
        self._release.set()
        self._thread.join(ANSWER)
        return self.outcome


def test_a_zombie_that_holds_the_positions_is_ended_and_writes_nothing(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)
    zombie = Paused(Driver(spec), Range(A, 0, 10))
    newer = Driver(spec)
    assert newer.task().advance(0, [Range(A, 0, 7)], rows(A, 0, 7)) == (Outcome.DONE, 7)
    error = zombie.release()
    assert isinstance(error, JobError)
    assert error.reason is Reason.SINK_UNREACHABLE, error
    assert (offsets(database), position(database)) == (list(range(7)), 7)


def test_an_earlier_attempt_of_a_task_is_ended_by_the_next(database: Database, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, database))
    first = Paused(driver, Range(A, 0, 10))
    assert driver.task().advance(0, [Range(A, 0, 10)], rows(A, 0, 10)) == (Outcome.DONE, 10)
    assert isinstance(first.release(), JobError)
    assert (offsets(database), position(database)) == (list(range(10)), 10)


def test_a_driver_that_was_overtaken_is_refused(database: Database, tmp_path: Path) -> None:
    """Also one that has moved nothing since, which no position tells."""
    spec = job(tmp_path, database)
    older = Driver(spec)
    newer = PostgresStore(spec)
    assert newer.join([A]) != older.membership
    for refused in (
        lambda: older.task().advance(0, [Range(A, 0, 10)], rows(A, 0, 10)),
        lambda: older.lanes.advance_all([Range(A, 0, 10)]),
        lambda: older.lanes.settle({A: 10}, [], None, ()),
        lambda: older.lanes.stop({A: 10}),
    ):
        with pytest.raises(JobError, match="another driver has joined") as caught:
            refused()
        assert caught.value.reason is Reason.POSITION_CONFLICT
    assert (offsets(database), position(database)) == ([], 0)


def test_an_overtaken_driver_ends_no_task_of_the_newer_one(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)
    older = Driver(spec)
    running = Paused(Driver(spec), Range(A, 0, 10))
    with pytest.raises(JobError, match="another driver has joined"):
        older.task().advance(0, [Range(A, 0, 5)], rows(A, 0, 5))
    assert running.release() == (Outcome.DONE, 10)


def test_a_transaction_does_not_time_out_while_the_first_rows_are_computed(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)
    driver = Driver(with_session(spec, idle_in_transaction_session_timeout="300"))

    def slow() -> Iterator[Any]:
        time.sleep(1)
        yield from rows(A, 0, 10)

    assert driver.task().advance(0, [Range(A, 0, 10)], slow()) == (Outcome.DONE, 10)

    def overtaken() -> Iterator[Any]:
        driver.task().advance(0, [Range(A, 10, 15)], rows(A, 10, 15))
        time.sleep(1)
        yield from rows(A, 10, 20)

    with pytest.raises(JobError):
        driver.task().advance(0, [Range(A, 10, 20)], overtaken())
    assert (offsets(database), position(database)) == (list(range(15)), 15)


def test_positions_that_are_gone_are_noticed_by_a_driver_that_had_some(database: Database, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, database))
    database.sql("DROP SCHEMA ackwright CASCADE")
    with pytest.raises(JobError, match="are no longer in ackwright") as caught:
        driver.sink.join([A])
    assert caught.value.reason is Reason.POSITION_LOST


def test_control_without_locks_two_attempts_write_twice(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresStore, "locks", False)
    driver = Driver(job(tmp_path, database))
    first = Paused(driver, Range(A, 0, 10))
    driver.task().advance(0, [Range(A, 0, 10)], rows(A, 0, 10))
    assert first.release() == (Outcome.DONE, 10)
    assert offsets(database) == sorted([*range(10), *range(10)])


def test_control_without_locks_a_zombie_writes_and_moves_the_position_back(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, database)
    monkeypatch.setattr(PostgresStore, "locks", False)
    monkeypatch.setattr("ackwright_stream.sinks.postgres.positions.terminate", lambda *_: None)
    zombie = Paused(Driver(spec), Range(A, 0, 5))
    Driver(spec).task().advance(0, [Range(A, 0, 10)], rows(A, 0, 10))
    assert zombie.release() == (Outcome.DONE, 5)
    assert offsets(database) != list(range(10))
    assert position(database) == 5
