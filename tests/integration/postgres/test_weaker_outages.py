"""Outages of PostgreSQL between the two steps of at-least-once and at-most-once. psql reads what is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import PASSWORD, Database, Postgres
from integration.support.postgres_proxy import cutting_commits
from integration.support.postgres_stores import TABLE, A, Driver, job, offsets, position, rows
from integration.support.weaker_outages import WEAKER, deliver_through
from waiting import wait_until

pytestmark = pytest.mark.usefixtures("rows_table")


@contextmanager
def restored(database: Database, change: str, back: str) -> Iterator[None]:
    """The administrator's change, until it is taken back."""
    database.sql(change, admin=True)
    yield
    database.sql(back, admin=True)


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_server_that_is_killed_between_rows_and_positions_keeps_the_weaker_guarantees(
    fragile_postgres: Postgres, tmp_path: Path, guarantee: Guarantee
) -> None:
    directory = tmp_path / "fragile"
    directory.mkdir()
    fragile = Database(fragile_postgres, directory)
    fragile.sql(TABLE)

    @contextmanager
    def killed() -> Iterator[None]:
        fragile_postgres.kill()
        yield
        fragile_postgres.start()

    new_driver = partial(Driver, replace(job(directory, fragile), guarantee=guarantee))
    expected = deliver_through(killed(), guarantee, new_driver, Reason.SINK_UNREACHABLE)
    assert offsets(fragile) == expected


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_password_that_changes_between_rows_and_positions_keeps_the_weaker_guarantees(
    database: Database, tmp_path: Path, guarantee: Guarantee
) -> None:
    """With the sessions that were open."""
    password, sessions = f"ALTER ROLE {database.role} PASSWORD", f"usename = '{database.role}'"
    end = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {sessions}"  # noqa: S608
    changed = restored(database, f"{password} 'another-horse'; {end}", f"{password} '{PASSWORD}'")
    new_driver = partial(Driver, replace(job(tmp_path, database), guarantee=guarantee))
    expected = deliver_through(changed, guarantee, new_driver, Reason.SINK_LOGIN_REFUSED)
    assert offsets(database) == expected


@pytest.mark.parametrize(
    ("guarantee", "right"),
    [
        (Guarantee.AT_MOST_ONCE, "INSERT ON rows"),
        (Guarantee.AT_LEAST_ONCE, "INSERT ON rows"),
        (Guarantee.AT_LEAST_ONCE, "UPDATE ON ackwright.positions"),
    ],
)
def test_a_permission_that_is_revoked_between_rows_and_positions_keeps_the_weaker_guarantees(
    database: Database, tmp_path: Path, guarantee: Guarantee, right: str
) -> None:
    revoked = restored(database, f"REVOKE {right} FROM {database.role}", f"GRANT {right} TO {database.role}")
    hits_rows = right == "INSERT ON rows"
    spec = replace(job(tmp_path, database), guarantee=guarantee)
    new_driver = partial(Driver, spec)
    expected = deliver_through(revoked, guarantee, new_driver, Reason.AUTHORIZATION_FAILED, hits_rows=hits_rows)
    assert offsets(database) == expected


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_table_that_changes_for_a_while_keeps_the_weaker_guarantees(
    database: Database, tmp_path: Path, guarantee: Guarantee
) -> None:
    renamed = restored(database, "ALTER TABLE rows RENAME n TO m", "ALTER TABLE rows RENAME m TO n")
    new_driver = partial(Driver, replace(job(tmp_path, database), guarantee=guarantee))
    expected = deliver_through(renamed, guarantee, new_driver, Reason.TABLE_UNSUITABLE, hits_rows=True)
    assert offsets(database) == expected


@pytest.mark.parametrize("guarantee", WEAKER)
@pytest.mark.parametrize("arrives", [True, False])
def test_rows_whose_commit_has_an_unknown_outcome_keep_the_weaker_guarantees(
    database: Database, tmp_path: Path, *, arrives: bool, guarantee: Guarantee
) -> None:
    """At-least-once writes them again. At-most-once has moved their position, and does not."""
    spec = replace(job(tmp_path, database), guarantee=guarantee)
    driver, all_ = Driver(spec), Range(A, 0, 50)
    if guarantee is Guarantee.AT_MOST_ONCE:
        assert driver.lanes.advance(0, [all_]) == (Outcome.DONE, 0)
    with cutting_commits(database.server.host, database.server.port, arrives=arrives) as port:
        through_proxy = PostgresStore(replace(spec, sink=database.sink(port=port)))
        with pytest.raises(JobError) as caught:
            through_proxy.write([A], rows(A, 0, 50), membership=driver.membership)
        assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    following = Driver(spec)
    if arrives:
        wait_until(lambda: len(offsets(database)) == 50, "the server has executed the commit")
    if guarantee is Guarantee.AT_MOST_ONCE:
        assert following.lanes.advance(0, [all_]) == (Outcome.SKIPPED, 0)
        assert (offsets(database), position(database)) == (list(range(50)) if arrives else [], 50)
        return
    assert position(database) == 0
    following.prepared(all_)()
    following.lanes.advance_all([all_])
    times = 2 if arrives else 1
    assert (offsets(database), position(database)) == (sorted(times * list(range(50))), 50)
