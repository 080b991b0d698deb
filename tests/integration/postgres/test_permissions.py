"""The permissions that docs/postgres.md lists are sufficient, and each is necessary."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres.positions import NAMES, TABLES
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database
from integration.support.postgres_stores import A, Driver, job, offsets, position, rows

OF_POSITIONS = [f"{right} ON {name}" for name in NAMES for right in ("SELECT", "INSERT", "UPDATE")]
OF_INSERTS = ["INSERT ON rows", "USAGE ON SCHEMA ackwright", *OF_POSITIONS]
OF_UPSERTS = ["SELECT ON rows", "UPDATE ON rows", "TEMPORARY ON DATABASE {database}"]


@pytest.fixture
def limited(database: Database) -> Database:
    """The role owns nothing and has no permission but to connect."""
    database.sql(
        f"ALTER DATABASE {database.name} OWNER TO admin; REVOKE ALL ON DATABASE {database.name} FROM PUBLIC; "
        f"GRANT CONNECT ON DATABASE {database.name} TO {database.role}; "
        f"CREATE TABLE rows (lane int, n bigint PRIMARY KEY); {TABLES}",
        admin=True,
    )
    return database


def grant(database: Database, *rights: str) -> None:
    """Grants the role these permissions."""
    statements = (f"GRANT {right.format(database=database.name)} TO {database.role}" for right in rights)
    database.sql("; ".join(statements), admin=True)


def upserting(database: Database, directory: Path) -> JobSpec:
    return job(directory, database, upsert=True, key=("n",))


def deliver(spec: JobSpec, start: int, until: int) -> tuple[Outcome, int]:
    """A new driver delivers a range."""
    return Driver(spec).task().advance(0, [Range(A, start, until)], rows(A, start, until))


def test_inserts_need_no_more_than_is_listed(limited: Database, tmp_path: Path) -> None:
    grant(limited, *OF_INSERTS)
    for n in range(2):
        assert deliver(job(tmp_path, limited), 5 * n, 5 * n + 5) == (Outcome.DONE, 5)
    assert limited.sql("SELECT n FROM rows ORDER BY n", admin=True) == [[str(n)] for n in range(10)]


def test_upserts_need_no_more_than_is_listed(limited: Database, tmp_path: Path) -> None:
    grant(limited, *OF_INSERTS, *OF_UPSERTS)
    for n in range(2):
        assert deliver(upserting(limited, tmp_path), 5 * n, 5 * n + 5) == (Outcome.DONE, 5)
    assert (offsets(limited), position(limited)) == (list(range(10)), 10)


@pytest.mark.parametrize("missing", [*OF_INSERTS, *OF_UPSERTS])
def test_without_any_one_permission_nothing_is_written_until_it_is_granted(
    limited: Database, tmp_path: Path, missing: str
) -> None:
    spec = upserting(limited, tmp_path)
    grant(limited, *(right for right in (*OF_INSERTS, *OF_UPSERTS) if right != missing))
    with pytest.raises(JobError) as caught:
        deliver(spec, 0, 5)
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    assert limited.sql("SELECT count(*) FROM rows", admin=True) == [["0"]]
    grant(limited, missing)
    assert deliver(spec, 0, 5) == (Outcome.DONE, 5)


@pytest.mark.parametrize("missing", ["INSERT ON rows", *OF_UPSERTS])
def test_the_check_names_each_missing_permission_on_table_and_database(
    limited: Database, tmp_path: Path, missing: str
) -> None:
    spec = upserting(limited, tmp_path)
    grant(limited, *(right for right in (*OF_INSERTS, *OF_UPSERTS) if right != missing))
    with pytest.raises(JobError) as caught:
        PostgresStore(spec).check()
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert f"GRANT {missing.split(maxsplit=1)[0]} ON" in caught.value.message
    grant(limited, missing)
    PostgresStore(spec).check()


def test_the_check_of_inserts_needs_no_temporary_tables(limited: Database, tmp_path: Path) -> None:
    grant(limited, *OF_INSERTS)
    PostgresStore(job(tmp_path, limited)).check()


def test_temporary_that_is_revoked_stops_upserts_until_it_is_granted(limited: Database, tmp_path: Path) -> None:
    """The next task fails, also in a session that has had a temporary table before."""
    spec, temporary = upserting(limited, tmp_path), "TEMPORARY ON DATABASE {database}"
    grant(limited, *OF_INSERTS, *OF_UPSERTS)
    task = Driver(spec).task()
    assert task.advance(0, [Range(A, 0, 5)], rows(A, 0, 5)) == (Outcome.DONE, 5)
    limited.sql(f"REVOKE {temporary.format(database=limited.name)} FROM {limited.role}", admin=True)
    with pytest.raises(JobError) as caught:
        task.advance(0, [Range(A, 5, 9)], rows(A, 5, 9))
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    assert (offsets(limited), position(limited)) == (list(range(5)), 5)
    grant(limited, temporary)
    assert task.advance(0, [Range(A, 5, 9)], rows(A, 5, 9)) == (Outcome.DONE, 4)
    assert (offsets(limited), position(limited)) == (list(range(9)), 9)
