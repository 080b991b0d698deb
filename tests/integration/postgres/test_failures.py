"""Failures of PostgreSQL and of the way to it: what is written, and what the error says. psql reads what is there."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import DataType, LongType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import PASSWORD, Database, Postgres
from integration.support.postgres_proxy import cutting_commits
from integration.support.postgres_stores import TABLE, A, Driver, job, offsets, position, rows, with_session

pytestmark = pytest.mark.usefixtures("rows_table")


def refused(call: Callable[[], Any], reason: Reason, *words: str) -> str:
    """The message of the JobError that the call raises; asserts its reason and that it is one line with the words."""
    with pytest.raises(JobError) as caught:
        call()
    message = caught.value.message
    assert caught.value.reason is reason, caught.value
    assert "\n" not in message
    assert PASSWORD not in message
    for word in words:
        assert word in message, message
    return message


@pytest.mark.parametrize("arrives", [True, False])
def test_a_connection_that_is_cut_after_the_commit_was_sent_is_an_unknown_outcome(
    database: Database, tmp_path: Path, arrives: bool
) -> None:
    spec = job(tmp_path, database)
    driver = Driver(spec)
    with cutting_commits(database.server.host, database.server.port, arrives=arrives) as port:
        through_proxy = replace(spec, sink=database.sink(port=port))
        task = driver.task()
        task.sink = PostgresStore(through_proxy)
        refused(lambda: task.advance(0, [Range(A, 0, 50)], rows(A, 0, 50)), Reason.SINK_UNREACHABLE)
    if arrives:
        assert (offsets(database), position(database)) == (list(range(50)), 50)
    outcome = driver.task().advance(0, [Range(A, 0, 50)], rows(A, 0, 50))
    assert outcome == ((Outcome.SKIPPED, 0) if arrives else (Outcome.DONE, 50))
    assert (offsets(database), position(database)) == (list(range(50)), 50)


def test_a_server_that_is_killed_and_returns_loses_and_repeats_nothing(
    fragile_postgres: Postgres, tmp_path: Path
) -> None:
    directory = tmp_path / "fragile"
    directory.mkdir()
    database = Database(fragile_postgres, directory)
    database.sql(TABLE)
    driver = Driver(job(directory, database))
    task = driver.task()
    assert task.advance(0, [Range(A, 0, 10)], rows(A, 0, 10)) == (Outcome.DONE, 10)

    def killed_in_between() -> Any:
        yield from rows(A, 10, 15)
        fragile_postgres.kill()
        yield from rows(A, 15, 20)

    refused(lambda: task.advance(0, [Range(A, 10, 20)], killed_in_between()), Reason.SINK_UNREACHABLE)
    refused(lambda: task.advance(0, [Range(A, 10, 20)]), Reason.SINK_UNREACHABLE, "check the sink's address")
    fragile_postgres.start()
    assert (offsets(database), position(database)) == (list(range(10)), 10)
    again = "the server was restarted or replaced since this driver has joined"
    refused(lambda: task.advance(0, [Range(A, 10, 20)], rows(A, 10, 20)), Reason.POSITION_CONFLICT, again)
    assert Driver(task.job).task().advance(0, [Range(A, 10, 20)], rows(A, 10, 20)) == (Outcome.DONE, 10)
    assert (offsets(database), position(database)) == (list(range(20)), 20)


def test_a_connection_that_broke_between_two_tasks_is_replaced(database: Database, tmp_path: Path) -> None:
    task = Driver(job(tmp_path, database)).task()
    task.advance(0, [Range(A, 0, 10)], rows(A, 0, 10))
    database.sql(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database.name}' "  # noqa: S608
        "AND pid <> pg_backend_pid()",
        admin=True,
    )
    assert task.advance(0, [Range(A, 10, 20)], rows(A, 10, 20)) == (Outcome.DONE, 10)
    assert offsets(database) == list(range(20))


def test_a_password_that_is_changed_stops_the_pipeline_until_the_secret_has_it(
    database: Database, tmp_path: Path
) -> None:
    """The sessions that are open stay, so that the task that runs commits."""
    driver = Driver(job(tmp_path, database))
    task = driver.task()
    task.advance(0, [Range(A, 0, 10)], rows(A, 0, 10))
    database.sql(f"ALTER ROLE {database.role} PASSWORD 'another-horse'", admin=True)
    assert task.advance(0, [Range(A, 10, 20)], rows(A, 10, 20)) == (Outcome.DONE, 10)
    again = [Range(A, 20, 30)]
    refused(lambda: driver.task().advance(0, again, rows(A, 20, 30)), Reason.SINK_LOGIN_REFUSED, "Secret")
    refused(lambda: Driver(driver.lanes.job), Reason.SINK_LOGIN_REFUSED, "password authentication failed")
    assert position_of(database) == "20"
    (database.credentials / "password").write_text("another-horse")
    assert Driver(driver.lanes.job).task().advance(0, again, rows(A, 20, 30)) == (Outcome.DONE, 10)
    rows_, at = database.sql("SELECT count(*), count(DISTINCT n) FROM rows", admin=True), position_of(database)
    assert (rows_, at) == ([["30", "30"]], "30")


def position_of(database: Database) -> str:
    """The position of the only lane, as the administrator reads it."""
    ((offset,),) = database.sql('SELECT "offset" FROM ackwright.positions', admin=True)
    return offset


@pytest.mark.parametrize("arrives", [True, False])
def test_positions_whose_commit_has_an_unknown_outcome_are_read_again(
    database: Database, tmp_path: Path, arrives: bool
) -> None:
    """For a claim of at-most-once, and for the advance after the rows of at-least-once."""
    spec = job(tmp_path, database)
    driver = Driver(spec)
    before = driver.sink.read([A])[A]
    assert before is not None
    with cutting_commits(database.server.host, database.server.port, arrives=arrives) as port:
        through_proxy = PostgresStore(replace(spec, sink=database.sink(port=port)))
        after = {A: replace(before, offset=50)}
        refused(lambda: through_proxy.advance(after, driver.membership), Reason.SINK_UNREACHABLE)
    assert position(database) == (50 if arrives else 0)
    driver.lanes.advance_all([Range(A, 0, 50)])
    assert position(database) == 50


def test_a_column_that_is_dropped_is_named_and_nothing_is_written(database: Database, tmp_path: Path) -> None:
    task = Driver(job(tmp_path, database)).task()
    task.advance(0, [Range(A, 0, 10)], rows(A, 0, 10))
    database.sql("ALTER TABLE rows RENAME COLUMN n TO m")
    again = [Range(A, 10, 20)]
    refused(lambda: task.advance(0, again, rows(A, 10, 20)), Reason.TABLE_UNSUITABLE, "no column 'n'")
    assert position(database) == 10
    database.sql("ALTER TABLE rows RENAME COLUMN m TO n")
    assert task.advance(0, again, rows(A, 10, 20)) == (Outcome.DONE, 10)
    assert offsets(database) == list(range(20))


@pytest.mark.parametrize(("altered", "n"), [("double precision", 1), ("integer", 2**40)])
def test_a_type_that_is_altered_between_two_tasks_is_noticed(
    database: Database, tmp_path: Path, altered: str, n: int
) -> None:
    """COPY in binary format would store other values: eight bytes of a bigint are also a double precision."""
    task = Driver(job(tmp_path, database)).task()
    task.advance(0, [Range(A, 0, 1)], rows(A, 0, 1))
    database.sql(f"ALTER TABLE rows ALTER COLUMN n TYPE {altered}")
    for _ in range(2):  # also in a worker that has read the table again
        refused(lambda: task.advance(0, [Range(A, 1, 9)], rows(A, n, n + 1)), Reason.TABLE_UNSUITABLE, altered)
    assert position(database) == 1


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE rows SET UNLOGGED", "UNLOGGED"),
        (
            "ALTER TABLE rows ADD PRIMARY KEY (n), ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; "
            "CREATE POLICY own ON rows USING (lane = 0)",
            "row-level security",
        ),
        (
            "DROP TABLE rows; CREATE TABLE rows (lane int, n bigint) PARTITION BY LIST (lane); "
            "CREATE UNLOGGED TABLE part PARTITION OF rows DEFAULT",
            "its partitions part are foreign or UNLOGGED",
        ),
        ("ALTER TABLE rows RENAME TO base; CREATE VIEW rows AS SELECT * FROM base", "it is a view"),
    ],
)
def test_a_table_that_cannot_keep_the_guarantee_is_refused(
    database: Database, tmp_path: Path, statement: str, words: str
) -> None:
    database.sql(statement)
    task = Driver(job(tmp_path, database, upsert=True, key=("n",))).task()
    refused(lambda: task.advance(0, [Range(A, 0, 5)], rows(A, 0, 5)), Reason.TABLE_UNSUITABLE, words)
    assert position(database) == 0


def test_a_row_that_the_table_refuses_is_named_without_its_values(database: Database, tmp_path: Path) -> None:
    database.sql("ALTER TABLE rows ADD CONSTRAINT small CHECK (n < 15)")
    task = Driver(job(tmp_path, database)).task()
    refused(lambda: task.advance(0, [Range(A, 0, 20)], rows(A, 0, 20)), Reason.ROW_REFUSED, "small", "row 16")
    assert (offsets(database), position(database)) == ([], 0)


TRIGGER = """
CREATE FUNCTION act() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER t BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION act()
"""


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE rows ADD PRIMARY KEY (lane)", Reason.ROW_REFUSED),
        (TRIGGER.format("RAISE EXCEPTION 'no' USING DETAIL = 'Key (lane)=(0)'"), Reason.ROW_REFUSED),
        (TRIGGER.format("RAISE program_limit_exceeded USING DETAIL = 'Key (lane)=(0)'"), Reason.ROW_REFUSED),
        (TRIGGER.format("RAISE with_check_option_violation USING DETAIL = 'Key (lane)=(0)'"), Reason.ROW_REFUSED),
        (TRIGGER.format("PERFORM pg_sleep(60)"), Reason.TRANSACTION_TIMED_OUT),
        (TRIGGER.format("RAISE SQLSTATE '25P04'"), Reason.TRANSACTION_TIMED_OUT),  # transaction_timeout of version 17
    ],
)
def test_an_error_of_the_server_has_its_reason_and_no_log_of_it_has_values(
    database: Database, tmp_path: Path, statement: str, reason: Reason
) -> None:
    database.sql(statement)
    spec = job(tmp_path, database)
    task = Driver(with_session(spec, statement_timeout="500")).task()
    with pytest.raises(JobError) as caught:
        task.advance(0, [Range(A, 0, 2)], rows(A, 0, 2))
    assert caught.value.reason is reason, caught.value
    assert "(lane)=(0)" not in "".join(traceback.format_exception(caught.value))


def test_what_is_wrong_with_the_server_is_one_sentence(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database)

    def check(**fields: Any) -> Callable[[], None]:
        return lambda: PostgresStore(replace(spec, sink=database.sink(**fields))).check()

    check()()
    (database.credentials / "password").write_text(f"{PASSWORD}\n")  # as echo writes it
    check()()
    refused(check(port=1), Reason.SINK_UNREACHABLE, "127.0.0.1:1", "check the sink's address")
    refused(check(database="none"), Reason.SINK_LOGIN_REFUSED, '"none" does not exist')
    refused(check(table="none"), Reason.TABLE_UNSUITABLE, "public.none", "createTable")
    refused(check(schema="none"), Reason.TABLE_UNSUITABLE, "none.rows")
    refused(check(credentials="/nowhere"), Reason.SINK_LOGIN_REFUSED, "/nowhere/username", "one file per key")
    refused(check(tls=True, ca="/nowhere/ca.crt"), Reason.SINK_LOGIN_REFUSED, "CA certificate")
    (database.credentials / "password").write_text("wrong")
    refused(check(), Reason.SINK_LOGIN_REFUSED, "password authentication failed", "Secret")


def test_the_certificate_and_its_host_name_are_verified(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, database)
    secured: dict[str, Any] = {"tls": True, "ca": str(database.server.ca)}
    PostgresStore(replace(spec, sink=database.sink(**secured))).check()
    other_name = PostgresStore(replace(spec, sink=database.sink(**secured, host="localhost")))
    refused(other_name.check, Reason.SINK_LOGIN_REFUSED, "localhost")
    other_ca = PostgresStore(replace(spec, sink=database.sink(tls=True, ca=None)))
    refused(other_ca.check, Reason.SINK_LOGIN_REFUSED, "certificate verify failed")
    trusted = SimpleNamespace(cafile=str(database.server.ca))  # the file with the CAs that this machine trusts
    monkeypatch.setattr("ssl.get_default_verify_paths", lambda: trusted)
    other_ca.check()


def test_without_the_right_to_create_positions_the_statements_are_named(database: Database, tmp_path: Path) -> None:
    store = PostgresStore(job(tmp_path, database))
    database.sql(f"ALTER DATABASE {database.name} OWNER TO admin", admin=True)
    message = refused(store.check, Reason.TABLE_UNSUITABLE, "may not create")
    statements = message[message.index("CREATE SCHEMA") : message.index(" and grant")]
    database.sql(statements, admin=True)
    refused(store.check, Reason.AUTHORIZATION_FAILED, "GRANT USAGE ON SCHEMA ackwright")
    database.sql(f"GRANT USAGE ON SCHEMA ackwright TO {database.role}", admin=True)
    refused(store.check, Reason.AUTHORIZATION_FAILED, "GRANT SELECT, INSERT, UPDATE ON ackwright.positions")
    database.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA ackwright TO {database.role}", admin=True)
    store.check()
    driver = Driver(store.job)
    assert driver.task().advance(0, [Range(A, 0, 5)], rows(A, 0, 5)) == (Outcome.DONE, 5)


def output(**columns: DataType) -> Any:
    """What prepare() reads of a frame with these columns."""
    return SimpleNamespace(schema=StructType([StructField(name, kind) for name, kind in columns.items()]))


def test_drivers_that_start_at_once_create_one_table(database: Database, tmp_path: Path) -> None:
    spec = job(tmp_path, database, "created", create_table=True)
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(PostgresStore(spec).prepare, output(n=LongType())) for _ in range(8)]:
            done.result(60)
    assert database.sql("SELECT * FROM created") == []


def test_a_table_that_does_not_fit_is_not_created(database: Database, tmp_path: Path) -> None:
    """PostgreSQL cuts a name off after 63 bytes."""
    store = PostgresStore(job(tmp_path, database, "created", create_table=True))
    refused(lambda: store.prepare(output(**{"n" * 64: LongType()})), Reason.TABLE_UNSUITABLE, "no column 'nnn")
    assert database.sql("SELECT to_regclass('created')") == [[""]]


def test_a_table_that_was_dropped_is_not_created_again(database: Database, tmp_path: Path) -> None:
    store = PostgresStore(job(tmp_path, database, "created", create_table=True))
    store.prepare(output(n=LongType()))
    Driver(store.job)
    database.sql("DROP TABLE created")
    refused(lambda: store.worker_columns(output(n=LongType())), Reason.TABLE_UNSUITABLE, "public.created", "are gone")
    database.sql("CREATE TABLE created (n bigint)")
    store.prepare(output(n=LongType()))


def test_positions_that_a_person_sets_halt_the_pipeline(database: Database, tmp_path: Path) -> None:
    spec: JobSpec = job(tmp_path, database)
    driver = Driver(spec)
    database.sql('UPDATE ackwright.positions SET "offset" = 7, driver = 0')
    refused(lambda: driver.task().advance(0, [Range(A, 0, 10)], rows(A, 0, 10)), Reason.POSITIONS_MOVED, "in-0: 7")
    assert offsets(database) == []
    driver.lanes.settle({A: 7}, [], None, (), "a-fingerprint")
    driver.lanes.settle({A: 7}, [], None, ())
    assert driver.sink.records().accepted == "a-fingerprint"
