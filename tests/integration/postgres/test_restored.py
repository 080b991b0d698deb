"""A database that lacks what was committed last: a backup that was restored, or a replica that became the primary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ackwright_stream.jobspec import Guarantee, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import positions as store
from integration.support.postgres import Database, Postgres
from integration.support.postgres_stores import TABLE, A, Driver, job, offsets, position
from integration.support.rules import reason_of

FIRST, SECOND = Range(A, 0, 5), Range(A, 5, 9)


def restore(database: Database) -> None:
    """Brings back the rows and the position of the beginning, in the server that runs."""
    database.sql('DELETE FROM rows; UPDATE ackwright.positions SET "offset" = 0')


def replace_server(server: Postgres) -> None:
    """Ends the server and starts it again, as clients see it if a replica becomes the primary."""
    server.kill()
    server.start()


@pytest.fixture
def fragile(fragile_postgres: Postgres, tmp_path: Path) -> Database:
    database = Database(fragile_postgres, tmp_path)
    database.sql(TABLE)
    return database


def spec_of(database: Database, directory: Path, guarantee: Guarantee) -> JobSpec:
    return replace(job(directory, database), guarantee=guarantee)


def test_a_driver_at_least_once_does_not_move_over_rows_that_a_restore_has_removed(
    fragile: Database, tmp_path: Path
) -> None:
    driver = Driver(spec_of(fragile, tmp_path, Guarantee.AT_LEAST_ONCE))
    driver.prepared(FIRST)()
    driver.lanes.advance_all([FIRST])
    restore(fragile)
    driver.prepared(SECOND)()
    assert reason_of(lambda: driver.lanes.advance_all([SECOND])) is Reason.POSITION_CONFLICT
    assert position(fragile) == 0
    following = Driver(driver.lanes.job)
    for batch in (FIRST, SECOND):
        following.prepared(batch)()
        following.lanes.advance_all([batch])
    assert (sorted({*offsets(fragile)}), position(fragile)) == (list(range(9)), 9)


@pytest.mark.parametrize("is_compared", [True, False])
def test_rows_on_one_server_and_positions_on_the_next_lose_nothing_at_least_once(
    fragile: Database, fragile_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_compared: bool
) -> None:
    """The control compares no servers, and moves the position over rows that the replica lacks."""
    driver = Driver(spec_of(fragile, tmp_path, Guarantee.AT_LEAST_ONCE))
    driver.prepared(FIRST)()
    replace_server(fragile_postgres)
    restore(fragile)
    if not is_compared:
        without_comparison(driver, fragile, monkeypatch)
        driver.lanes.advance_all([FIRST])
        assert (offsets(fragile), position(fragile)) == ([], FIRST.until)
        return
    assert reason_of(lambda: driver.lanes.advance_all([FIRST])) is Reason.POSITION_CONFLICT
    following = Driver(driver.lanes.job)
    following.prepared(FIRST)()
    following.lanes.advance_all([FIRST])
    assert (offsets(fragile), position(fragile)) == (list(range(5)), 5)


@pytest.mark.parametrize("is_compared", [True, False])
def test_a_claim_on_one_server_and_rows_on_the_next_repeat_nothing_at_most_once(
    fragile: Database, fragile_postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_compared: bool
) -> None:
    """The replica lacks the claim, so the rows are claimed once more. In the control they are there twice."""
    driver = Driver(spec_of(fragile, tmp_path, Guarantee.AT_MOST_ONCE))
    assert driver.task().advance(0, [FIRST]) == (Outcome.DONE, 0)
    replace_server(fragile_postgres)
    restore(fragile)
    if is_compared:
        assert reason_of(driver.prepared(FIRST)) is Reason.POSITION_CONFLICT
    else:
        without_comparison(driver, fragile, monkeypatch)
        driver.prepared(FIRST)()
    following = Driver(driver.lanes.job)
    assert following.task().advance(0, [FIRST]) == (Outcome.DONE, 0)
    following.prepared(FIRST)()
    assert offsets(fragile) == sorted([*range(5)] * (1 if is_compared else 2))


def without_comparison(driver: Driver, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the driver take the server for the one that it has joined."""
    monkeypatch.setattr(store, "_require_same_server", lambda latest, expected: None)
    with driver.sink._driver_transaction() as cursor:
        driver.lanes.membership = store.membership(cursor, driver.lanes.job.group, lock=False)
