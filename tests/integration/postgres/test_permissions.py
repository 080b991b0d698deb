"""The permissions that docs/postgres.md lists are sufficient, and each is necessary.

A driver calls check() before it writes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from ackwright_stream import dead_letters
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import decisions
from ackwright_stream.sinks.postgres.positions import NAMES, TABLES
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database
from integration.support.postgres_stores import A, Driver, job, rows
from integration.support.stateful_pipelines import with_state

CONNECT, TEMPORARY = "CONNECT ON DATABASE {database}", "TEMPORARY ON DATABASE {database}"
OF_POSITIONS = [
    "USAGE ON SCHEMA ackwright",
    *(f"{right} ON {n}" for n in NAMES for right in ("SELECT", "INSERT", "UPDATE")),
]
OF_APPENDS = [CONNECT, "USAGE ON SCHEMA app", "INSERT ON app.rows", *OF_POSITIONS]
OF_UPSERTS = ["SELECT ON app.rows", "UPDATE ON app.rows", TEMPORARY]
OF_DECISIONS = [f"{right} ON {decisions.NAME}" for right in ("SELECT", "INSERT", "DELETE")]
SCHEMA = """
CREATE SCHEMA app;
CREATE TABLE app.rows (lane int, n bigint PRIMARY KEY);
CREATE TABLE app.letters (
    pipeline text, source_topic text, source_partition integer, source_offset bigint, key bytea, value bytea,
    headers text, reason text
);
"""
UPSERT = {"upsert": True, "key": ("n",)}
LETTER = {"topic": "in", "partition": 0, "offset": 0, "key": None, "value": b"{", "headers": None, "reason": "no JSON"}


@dataclass(frozen=True)
class Pipeline:
    """A kind of pipeline into app.rows."""

    more: tuple[str, ...] = ()  # permissions beside OF_APPENDS
    fields: Mapping[str, Any] = field(default_factory=dict)  # of the sink
    has_state: bool = False

    @property
    def permissions(self) -> tuple[str, ...]:
        return (*OF_APPENDS, *self.more)

    def spec(self, directory: Path, database: Database) -> JobSpec:
        spec = job(directory, database, schema="app", **self.fields)
        return with_state(spec, directory / "state") if self.has_state else spec

    def deliver(self, spec: JobSpec, batch: int) -> None:
        """A new driver delivers five rows, and a dead letter if there are any.

        With deletedColumn also rows that delete those of the batch before.
        """
        range_ = Range(A, 5 * batch, 5 * batch + 5)
        output = list(rows(A, range_.start, range_.until))
        if "deleted_column" in self.fields:
            output = [*with_flag(rows(A, max(0, range_.start - 5), range_.start), True), *with_flag(output, False)]
        letters = [pa.RecordBatch.from_pylist([LETTER], dead_letters.COLUMNS)] if self.has_letters else []
        driver = Driver(spec)
        if self.has_state:
            starts, ends = {A: range_.start}, {A: range_.until}
            assert driver.lanes.decide_batch(starts, ends, output, batch, "decision", letters=letters) == 5
        else:
            written = sum(part.num_rows for part in output)
            assert driver.task().advance(0, [range_], output, letters) == (Outcome.DONE, written)

    @property
    def has_letters(self) -> bool:
        return "dead_letter_table" in self.fields

    def expected(self, batches: int) -> list[list[str]]:
        """What content() returns after so many batches."""
        last = "deleted_column" in self.fields
        offsets = range(5 * batches)[-5 if last else 0 :]
        return [
            [f"row {n}" for n in offsets],
            ["letter"] * (batches if self.has_letters else 0),
            [f"decision {n}" for n in range(batches if self.has_state else 0)],
            [f"position {5 * batches}"] if batches else [],
        ]


PIPELINES = {
    "append": Pipeline(),
    "upsert": Pipeline(tuple(OF_UPSERTS), UPSERT),
    "deletedColumn": Pipeline((*OF_UPSERTS, "DELETE ON app.rows"), {**UPSERT, "deleted_column": "gone"}),
    "deadLetter": Pipeline(("INSERT ON app.letters",), {"dead_letter_table": "letters"}),
    "state": Pipeline(tuple(OF_DECISIONS), has_state=True),
    "state-upsert-deadLetter": Pipeline(
        (*OF_UPSERTS, *OF_DECISIONS, "INSERT ON app.letters"),
        {**UPSERT, "dead_letter_table": "letters"},
        has_state=True,
    ),
}


def with_flag(batches: Iterable[pa.RecordBatch], flag: bool) -> Iterable[pa.RecordBatch]:
    """The rows with a column `gone`."""
    return (batch.append_column("gone", pa.array([flag] * batch.num_rows)) for batch in batches)


def content(database: Database) -> list[list[str]]:
    """Rows, dead letters, decisions, and positions that have moved, as psql reads them."""
    statements = (
        "SELECT 'row ' || n FROM app.rows ORDER BY n",
        "SELECT 'letter' FROM app.letters",
        "SELECT decision || ' ' || batch FROM ackwright.decisions ORDER BY batch",
        """SELECT 'position ' || "offset" FROM ackwright.positions WHERE "offset" > 0""",
    )
    return [[text for (text,) in database.sql(statement, admin=True)] for statement in statements]


@pytest.fixture
def limited(database: Database) -> Database:
    """The role owns nothing and has no permission, also none that PostgreSQL grants everyone."""
    database.sql(
        f"ALTER DATABASE {database.name} OWNER TO admin; REVOKE ALL ON DATABASE {database.name} FROM PUBLIC; "
        f"REVOKE ALL ON SCHEMA public FROM PUBLIC; {SCHEMA}; {TABLES}; {''.join(decisions.CREATIONS.values())}",
        admin=True,
    )
    return database


def grant(database: Database, *permissions: str) -> None:
    """Grants the role these permissions."""
    statements = (f"GRANT {permission} TO {database.role}" for permission in permissions)
    database.sql("; ".join(statements).format(database=database.name), admin=True)


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_pipeline_needs_no_more_than_is_listed(limited: Database, tmp_path: Path, kind: str) -> None:
    pipeline = PIPELINES[kind]
    spec = pipeline.spec(tmp_path, limited)
    grant(limited, *pipeline.permissions)
    for batch in range(2):
        PostgresStore(spec).check()
        pipeline.deliver(spec, batch)
    assert content(limited) == pipeline.expected(2)


# Of the kinds that need the same permission one is tried. Their statements that need it are the same.
ONE_LESS = [
    *(("append", permission) for permission in OF_APPENDS),
    *(("upsert", permission) for permission in OF_UPSERTS),
    ("deletedColumn", "DELETE ON app.rows"),
    ("deadLetter", "INSERT ON app.letters"),
    *(("state", permission) for permission in ("USAGE ON SCHEMA ackwright", *OF_DECISIONS)),
]


@pytest.mark.parametrize(("kind", "missing"), ONE_LESS)
def test_without_one_permission_nothing_is_written_and_the_check_names_it(
    limited: Database, tmp_path: Path, kind: str, missing: str
) -> None:
    pipeline = PIPELINES[kind]
    spec, words = pipeline.spec(tmp_path, limited), f"GRANT {missing.format(database=limited.name)} TO"
    reason = Reason.AUTHORIZATION_FAILED
    if missing == CONNECT:
        words, reason = "User does not have CONNECT privilege", Reason.SINK_LOGIN_REFUSED
    grant(limited, *(permission for permission in pipeline.permissions if permission != missing))
    with pytest.raises(JobError) as caught:
        PostgresStore(spec).check()
    assert caught.value.reason is reason, caught.value
    assert words in caught.value.message
    assert caught.value.message.count("lacks") <= 1, "it names a permission that the role has"
    with pytest.raises(JobError) as caught:  # also if it is revoked after the check
        pipeline.deliver(spec, 0)
    assert caught.value.reason is reason, caught.value
    assert content(limited) == pipeline.expected(0)
    grant(limited, missing)
    PostgresStore(spec).check()
    pipeline.deliver(spec, 0)
    assert content(limited) == pipeline.expected(1)


def test_the_check_names_all_missing_permissions_at_once(limited: Database, tmp_path: Path) -> None:
    grant(limited, CONNECT, "USAGE ON SCHEMA app")
    with pytest.raises(JobError) as caught:
        PostgresStore(PIPELINES["deletedColumn"].spec(tmp_path, limited)).check()
    for words in (
        "GRANT USAGE ON SCHEMA ackwright TO",
        *(f"GRANT SELECT, INSERT, UPDATE ON {name} TO" for name in NAMES),
        f"GRANT TEMPORARY ON DATABASE {limited.name} TO",
        "GRANT INSERT, SELECT, UPDATE, DELETE ON app.rows TO",
    ):
        assert words in caught.value.message


def test_the_default_of_a_serial_column_needs_usage_on_its_sequence(limited: Database, tmp_path: Path) -> None:
    """Unless the output has the column; that of an identity column does not."""
    limited.sql(
        "ALTER TABLE app.rows ADD position bigserial, ADD number bigint GENERATED ALWAYS AS IDENTITY", admin=True
    )
    spec = PIPELINES["append"].spec(tmp_path, limited)
    grant(limited, *OF_APPENDS)
    PostgresStore(spec).check()
    with pytest.raises(JobError, match="permission denied for sequence rows_position_seq") as caught:
        PIPELINES["append"].deliver(spec, 0)
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert content(limited) == PIPELINES["append"].expected(0)
    grant(limited, "USAGE ON SEQUENCE app.rows_position_seq")
    PIPELINES["append"].deliver(spec, 0)
    assert content(limited) == PIPELINES["append"].expected(1)


OF_CREATION = ["CREATE ON DATABASE {database}", "CREATE ON SCHEMA app", "USAGE ON SCHEMA app"]


@pytest.fixture
def without_tables(limited: Database) -> Database:
    """There is the schema app and nothing in it, and no schema ackwright."""
    limited.sql("DROP SCHEMA ackwright CASCADE; DROP TABLE app.rows, app.letters", admin=True)
    return limited


CREATING = Pipeline((), {**PIPELINES["state-upsert-deadLetter"].fields, "create_table": True}, has_state=True)


def test_a_pipeline_that_creates_its_tables_needs_no_more_than_is_listed(
    without_tables: Database, tmp_path: Path
) -> None:
    grant(without_tables, CONNECT, TEMPORARY, *OF_CREATION)
    spec = CREATING.spec(tmp_path, without_tables)
    store, columns = PostgresStore(spec), StructType([StructField("lane", IntegerType()), StructField("n", LongType())])
    output: Any = SimpleNamespace(schema=columns)
    store.check(output)
    store.prepare(output)
    CREATING.deliver(spec, 0)
    assert content(without_tables) == CREATING.expected(1)


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (OF_CREATION[0], "run as the database's owner: CREATE SCHEMA IF NOT EXISTS ackwright;"),
        (OF_CREATION[1], "run GRANT CREATE, USAGE ON SCHEMA app TO"),
        (OF_CREATION[2], "run GRANT CREATE, USAGE ON SCHEMA app TO"),
    ],
)
def test_a_role_that_may_not_create_what_is_missing_is_refused(
    without_tables: Database, tmp_path: Path, missing: str, words: str
) -> None:
    grant(without_tables, CONNECT, TEMPORARY, *(permission for permission in OF_CREATION if permission != missing))
    with pytest.raises(JobError) as caught:
        PostgresStore(CREATING.spec(tmp_path, without_tables)).check()
    assert words in caught.value.message


def test_temporary_that_is_revoked_stops_upserts_until_it_is_granted(limited: Database, tmp_path: Path) -> None:
    """The next task fails, also in a session that has had a temporary table before."""
    spec = PIPELINES["upsert"].spec(tmp_path, limited)
    grant(limited, *PIPELINES["upsert"].permissions)
    task = Driver(spec).task()
    assert task.advance(0, [Range(A, 0, 5)], rows(A, 0, 5)) == (Outcome.DONE, 5)
    limited.sql(f"REVOKE {TEMPORARY.format(database=limited.name)} FROM {limited.role}", admin=True)
    with pytest.raises(JobError) as caught:
        task.advance(0, [Range(A, 5, 10)], rows(A, 5, 10))
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    assert content(limited) == PIPELINES["upsert"].expected(1)
    grant(limited, TEMPORARY)
    assert task.advance(0, [Range(A, 5, 10)], rows(A, 5, 10)) == (Outcome.DONE, 5)
    assert content(limited) == PIPELINES["upsert"].expected(2)
