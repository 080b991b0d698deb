"""Values and upserts in a real PostgreSQL, as psql reads them."""

from __future__ import annotations

import datetime
import hashlib
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.postgres import binary_copy
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database
from integration.support.postgres_stores import A, Driver, job

UTC = datetime.UTC


class Table:
    """A table of a pipeline with one lane, to which batches are delivered one after the other."""

    def __init__(self, database: Database, directory: Path, columns: str, **fields: Any) -> None:
        database.sql(f"CREATE TABLE rows ({columns})")
        self.database = database
        self.driver = Driver(job(directory, database, **fields))
        self.offset = 0

    def deliver(self, *batches: pa.RecordBatch) -> None:
        end = self.offset + 1
        outcome, _ = self.driver.task().advance(0, [Range(A, self.offset, end)], batches)
        assert outcome is Outcome.DONE
        self.offset = end

    def rows(self) -> list[list[str]]:
        return self.database.sql("SELECT * FROM rows ORDER BY 1")


VALUES: list[tuple[str, pa.DataType, Any, str]] = [
    ("boolean", pa.bool_(), True, "t"),
    ("smallint", pa.int8(), -128, "-128"),
    ("integer", pa.int16(), 32767, "32767"),
    ("integer", pa.int32(), -(2**31), "-2147483648"),
    ("bigint", pa.int32(), 7, "7"),
    ("bigint", pa.int64(), 2**63 - 1, "9223372036854775807"),
    ("numeric", pa.int64(), -5, "-5"),
    ("real", pa.float32(), 0.5, "0.5"),
    ("double precision", pa.float32(), 0.25, "0.25"),
    ("double precision", pa.float64(), 1e300, "1e+300"),
    ("numeric(20,4)", pa.decimal128(12, 2), Decimal("-1234567890.12"), "-1234567890.1200"),
    ("text", pa.string(), "naïve ☃ 𝄞", "naïve ☃ 𝄞"),
    ("varchar(3)", pa.string(), "äöü", "äöü"),
    ("char(4)", pa.string(), "ab", "ab  "),
    ("json", pa.string(), '{"a": [1,  2]}', '{"a": [1,  2]}'),
    ("jsonb", pa.string(), '{"b": 1, "a": "ü"}', '{"a": "ü", "b": 1}'),
    ("bytea", pa.binary(), b"\x00\xff", "\\x00ff"),
    ("date", pa.date32(), datetime.date(1, 1, 1), "0001-01-01"),
    (
        "timestamptz",
        pa.timestamp("us", "UTC"),
        datetime.datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "2026-01-02 03:04:05.000006+00",
    ),
    ("timestamp", pa.timestamp("us"), datetime.datetime(1900, 1, 2, 3, 4, 5), "1900-01-02 03:04:05"),
]


def test_every_type_arrives_as_it_is_and_null_as_null(database: Database, tmp_path: Path) -> None:
    columns = ", ".join(f"c{i} {declared}" for i, (declared, *_) in enumerate(VALUES))
    table = Table(database, tmp_path, columns)
    values = {f"c{i}": pa.array([value, None], kind) for i, (_, kind, value, _) in enumerate(VALUES)}
    table.deliver(pa.record_batch(values))
    database.sql("ALTER ROLE CURRENT_USER SET timezone = 'UTC'")
    assert sorted(table.rows()) == sorted([[text for *_, text in VALUES], [""] * len(VALUES)])


@pytest.mark.parametrize(
    ("declared", "values", "words"),
    [
        ("c varchar(3)", pa.array(["abcd"]), ("too long", "column c")),
        ("c numeric(3,0)", pa.array([1000], pa.int64()), ("overflow",)),
        ("c text", pa.array(["a\0b"]), ("0x00",)),
        ("c text", pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False), ("'c'", "UTF-8")),
        ("c text NOT NULL", pa.array([None], pa.string()), ("null value", "column c")),
        ("c jsonb", pa.array(["{"]), ("json", "column c")),
        ("c text PRIMARY KEY", pa.array(["a", "a"]), ("duplicate key", "rows_pkey")),
    ],
)
def test_a_value_that_a_column_does_not_hold_is_refused(
    database: Database, tmp_path: Path, declared: str, values: pa.Array, words: tuple[str, ...]
) -> None:
    table = Table(database, tmp_path, declared)
    with pytest.raises(JobError) as caught:
        table.deliver(pa.record_batch({"c": values}))
    assert caught.value.reason is Reason.ROW_REFUSED, caught.value
    for word in words:
        assert word in caught.value.message
    assert table.rows() == []


def keyed(*rows: tuple[Any, ...], extra: tuple[str, pa.DataType] | None = None) -> pa.RecordBatch:
    """Rows of the columns id, v and an extra one."""
    fields = [("id", pa.int64()), ("v", pa.string()), *([extra] if extra else [])]
    return pa.record_batch({name: pa.array([row[i] for row in rows], kind) for i, (name, kind) in enumerate(fields)})


def test_an_upsert_leaves_the_last_row_of_each_key(database: Database, tmp_path: Path) -> None:
    table = Table(database, tmp_path, "id bigint PRIMARY KEY, v text", upsert=True, key=("id",))
    table.deliver(keyed((1, "a"), (2, "a"), (1, "b")), keyed((1, "c")))
    assert table.rows() == [["1", "c"], ["2", "a"]]
    table.deliver(keyed((2, "d")))
    assert table.rows() == [["1", "c"], ["2", "d"]]


@pytest.mark.parametrize("upsert", [False, True])
def test_rows_of_many_megabytes(database: Database, tmp_path: Path, upsert: bool) -> None:
    """A batch of more than 64 MiB is encoded in parts. PostgreSQL compresses the text, and not the bytes."""
    fields: dict[str, Any] = {"upsert": True, "key": ("id",)} if upsert else {}
    table = Table(database, tmp_path, "id bigint PRIMARY KEY, v text, b bytea", **fields)
    texts = [chr(97 + n) * (24 << 20) for n in range(4)]
    binary = random.Random(1).randbytes(12 << 20)
    rows = keyed(*((n, text, binary) for n, text in enumerate(texts)), extra=("b", pa.binary()))
    assert rows.nbytes > 2 * binary_copy._AT_ONCE
    table.deliver(rows.slice(0, 3), rows.slice(3))
    hashes = [[str(n), md5(text.encode()), md5(binary)] for n, text in enumerate(texts)]
    assert database.sql("SELECT id, md5(v), md5(b) FROM rows ORDER BY id") == hashes


def test_a_row_that_the_server_cannot_allocate_is_refused(database: Database, tmp_path: Path) -> None:
    """As it answers to a row of 1 GB, without such a row. Otherwise the job would try it forever."""
    table = Table(database, tmp_path, "c text")
    database.sql(
        "CREATE FUNCTION large() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION "
        "'invalid memory alloc request size 1080000056' USING ERRCODE = 'XX000'; END $$"
    )
    database.sql("CREATE TRIGGER large BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION large()")
    with pytest.raises(JobError, match="invalid memory alloc request size") as caught:
        table.deliver(pa.record_batch({"c": ["a"]}))
    assert caught.value.reason is Reason.ROW_REFUSED
    assert table.rows() == []


def md5(content: bytes) -> str:
    """The hash that PostgreSQL's function of this name returns."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def test_names_of_columns_that_are_not_ascii(database: Database, tmp_path: Path) -> None:
    columns = 'größe bigint PRIMARY KEY, "Straße" text'
    table = Table(database, tmp_path, columns, upsert=True, key=("größe",))
    for text in ("ä", "ö"):
        table.deliver(pa.record_batch({"größe": pa.array([1], pa.int64()), "Straße": pa.array([text])}))
    assert table.rows() == [["1", "ö"]]


def test_a_row_that_is_marked_as_deleted_is_deleted(database: Database, tmp_path: Path) -> None:
    columns = "id bigint PRIMARY KEY, v text NOT NULL"
    table = Table(database, tmp_path, columns, upsert=True, key=("id",), deleted_column="gone")
    flag = ("gone", pa.bool_())
    table.deliver(keyed((1, "a", False), (2, "a", None), (3, "a", False), (3, None, True), extra=flag))
    assert table.rows() == [["1", "a"], ["2", "a"]]
    table.deliver(keyed((1, None, True), (2, None, True), (2, "b", False), (9, None, True), extra=flag))
    assert table.rows() == [["2", "b"]]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("id bigint UNIQUE, v text", "the key column 'id' may be null"),
        ("id bigint NOT NULL, v text, UNIQUE (id, v)", 'no unique index on exactly the key ("id")'),
    ],
)
def test_an_index_that_does_not_make_the_key_unique_is_refused(
    database: Database, tmp_path: Path, columns: str, words: str
) -> None:
    table = Table(database, tmp_path, columns, upsert=True, key=("id",))
    with pytest.raises(JobError) as caught:
        table.deliver(keyed((None, "a")))
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    assert words in caught.value.message
    assert table.rows() == []


def test_a_unique_index_may_include_other_columns_and_a_version_have_a_default(
    database: Database, tmp_path: Path
) -> None:
    columns = "id bigint NOT NULL, v text, at int NOT NULL DEFAULT 0, UNIQUE (id) INCLUDE (v)"
    table = Table(database, tmp_path, columns, upsert=True, key=("id",), version_column="at")
    table.deliver(keyed((1, "a", 1), extra=AT))
    assert table.rows() == [["1", "a", "1"]]


@pytest.mark.parametrize("declared", ["numeric(4,1)", "numeric(4,-2)", "tenths"])
def test_a_numeric_that_would_round_is_refused(database: Database, tmp_path: Path, declared: str) -> None:
    database.sql("CREATE DOMAIN tenth AS numeric(4,1); CREATE DOMAIN tenths AS tenth")
    table = Table(database, tmp_path, f"c {declared}")
    with pytest.raises(JobError, match=f"and {re.escape(declared)} in the table") as caught:
        table.deliver(pa.record_batch({"c": pa.array([Decimal("1.25")], pa.decimal128(3, 2))}))
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    assert table.rows() == []


@pytest.mark.parametrize("declared", ["timestamptz(3)", "timestamptz(0)", "thousandths"])
@pytest.mark.parametrize("compared", ["key", "version_column"])
def test_a_time_by_which_rows_are_compared_is_not_rounded(
    database: Database, tmp_path: Path, compared: str, declared: str
) -> None:
    database.sql("CREATE DOMAIN thousandth AS timestamptz(3); CREATE DOMAIN thousandths AS thousandth")
    key = ("at",) if compared == "key" else ("id",)
    fields = {"upsert": True, "key": key, **({compared: "at"} if compared == "version_column" else {})}
    columns = f"id bigint NOT NULL, v text, at {declared} NOT NULL, UNIQUE ({key[0]})"
    table = Table(database, tmp_path, columns, **fields)
    with pytest.raises(JobError, match="'at' rounds the times by which rows are compared") as caught:
        table.deliver(
            keyed((1, "a", datetime.datetime(2026, 1, 1, tzinfo=UTC)), extra=("at", pa.timestamp("us", "UTC")))
        )
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    assert table.rows() == []


def test_a_row_may_have_what_a_deleted_one_had(database: Database, tmp_path: Path) -> None:
    table = Table(
        database, tmp_path, "id bigint PRIMARY KEY, v text UNIQUE", upsert=True, key=("id",), deleted_column="gone"
    )
    gone = ("gone", pa.bool_())
    table.deliver(keyed((1, "a", False), extra=gone))
    table.deliver(keyed((1, None, True), (2, "a", False), extra=gone))
    assert table.rows() == [["2", "a"]]


def test_a_row_without_a_partition_waits_for_one(database: Database, tmp_path: Path) -> None:
    columns = "id bigint, v text) PARTITION BY RANGE (id"
    table = Table(database, tmp_path, columns)
    with pytest.raises(JobError, match="no partition of relation") as caught:
        table.deliver(keyed((1, "a")))
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    database.sql("CREATE TABLE rows_1 PARTITION OF rows FOR VALUES FROM (0) TO (10)")
    table.deliver(keyed((1, "a")))
    assert table.rows() == [["1", "a"]]


def test_a_table_with_the_name_of_the_temporary_one_is_not_touched(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE ackwright_rows (id bigint, v text)")
    database.sql(f"ALTER ROLE CURRENT_USER IN DATABASE {database.name} SET search_path = public, pg_temp")
    table = Table(database, tmp_path, "id bigint PRIMARY KEY, v text", upsert=True, key=("id",))
    table.deliver(keyed((1, "a")))
    assert (table.rows(), database.sql("SELECT * FROM ackwright_rows")) == ([["1", "a"]], [])


VERSIONED = "id bigint PRIMARY KEY, v text, at int NOT NULL"
AT = ("at", pa.int32())


def test_a_version_decides_which_row_stays(database: Database, tmp_path: Path) -> None:
    table = Table(database, tmp_path, VERSIONED, upsert=True, key=("id",), version_column="at")
    table.deliver(keyed((1, "old", 1), (1, "new", 3), (1, "older", 2), (2, "first", 5), (2, "second", 5), extra=AT))
    assert table.rows() == [["1", "new", "3"], ["2", "first", "5"]]
    table.deliver(keyed((1, "late", 2), (2, "third", 5), (3, "x", 0), extra=AT))
    assert table.rows() == [["1", "new", "3"], ["2", "first", "5"], ["3", "x", "0"]]


@pytest.mark.parametrize("versioned", [True, False])
def test_a_late_write_of_a_zombie_changes_nothing_only_with_versions(
    database: Database, tmp_path: Path, versioned: bool
) -> None:
    """At-least-once: a write outside of a transaction with the position, which no lock fences."""
    version = {"version_column": "at"} if versioned else {}
    table = Table(database, tmp_path, VERSIONED, upsert=True, key=("id",), **version)
    zombie = PostgresStore(table.driver.lanes.job)
    table.deliver(keyed((1, "new", 2), extra=AT))
    assert zombie.write([A], [keyed((1, "old", 1), extra=AT)], membership=table.driver.membership) == 1
    assert table.rows() == ([["1", "new", "2"]] if versioned else [["1", "old", "1"]])


def test_names_are_quoted(database: Database, tmp_path: Path) -> None:
    database.sql('CREATE SCHEMA "my-schema"')
    database.sql('CREATE TABLE "my-schema"."Select" ("Order" int, "a-b" int)')
    driver = Driver(job(tmp_path, database, "Select", schema="my-schema"))
    batch = pa.record_batch({"a-b": pa.array([2], pa.int32()), "Order": pa.array([1], pa.int32())})
    driver.task().advance(0, [Range(A, 0, 1)], [batch])
    assert database.sql('SELECT * FROM "my-schema"."Select"') == [["1", "2"]]


@pytest.mark.parametrize("name", ["größe", "Order Id", 'q"x', "b`t", "a.b", "%s", "{}", "ü" * 31])
def test_a_key_has_any_name_that_postgresql_takes(database: Database, tmp_path: Path, name: str) -> None:
    columns = f'"{name.replace(chr(34), chr(34) * 2)}" bigint PRIMARY KEY, v text'
    table = Table(database, tmp_path, columns, upsert=True, key=(name,), deleted_column="gone %")
    names = [name, "v", "gone %"]
    types = [pa.int64(), pa.string(), pa.bool_()]

    def deliver(*rows: tuple[int, str | None, bool]) -> None:
        arrays = [pa.array(values, kind) for values, kind in zip(zip(*rows, strict=True), types, strict=True)]
        table.deliver(pa.record_batch(arrays, names=names))

    deliver((1, "a", False), (2, "a", False))
    deliver((1, "b", False), (2, None, True))
    assert table.rows() == [["1", "b"]]
