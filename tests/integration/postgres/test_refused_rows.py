"""The error for a row that a table refuses names the record, the column and the value, and nothing is written."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream import refused_rows
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.positions import Lane, Range
from integration.support.postgres import Database
from integration.support.postgres_stores import A, B, Driver, job

RANGES = [Range(A, 100, 108), Range(B, 50, 62)]  # of one task
BAD = 57  # the offset in B of the record whose row is refused
REMEDY = "change the transform, the table or topic, or the producer of the record, so that the sink takes the row"


class Records:
    """The rows of records: one each, as in a task, and one that the table refuses."""

    def __init__(self, good: pa.Array, bad: pa.Array) -> None:
        self._good, self._bad = good, bad

    def rows(self, lane: Lane, start: int, until: int) -> pa.Table:
        """The rows of the records [start, until); `id` tells records apart."""
        bad = [lane == B and n == BAD for n in range(start, until)]
        values = pa.chunked_array([(self._bad if is_bad else self._good).slice(0, 1) for is_bad in bad])
        ids = pa.array([f"{lane}@{n}" for n in range(start, until)])
        return pa.table({"id": ids, "c": values.combine_chunks()})


def refused(driver: Driver, records: Records) -> JobError:
    """The error of a task with these records."""
    batches = [batch for r in RANGES for batch in records.rows(r.lane, r.start, r.until).to_batches()]
    with pytest.raises(JobError) as caught:
        driver.task().advance(0, RANGES, batches)
    assert caught.value.reason is Reason.ROW_REFUSED, caught.value
    return caught.value


def driver_of(database: Database, directory: Path, declared: str, **fields: Any) -> Driver:
    database.sql("CREATE TABLE known (c text PRIMARY KEY); INSERT INTO known VALUES ('a')")
    database.sql(f"CREATE TABLE rows (id text PRIMARY KEY, c {declared})")
    driver = Driver(job(directory, database, **fields), [A, B])
    starts = {r.lane: r.start for r in RANGES}
    driver.lanes.settle(starts, [], None, ())
    return driver


LARGE = "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(100))  # which PostgreSQL does not compress
CASES = [
    ("varchar(3)", pa.array(["abc"]), pa.array(["x" * 100]), f"(c = '{'x' * 59}…)"),
    ("varchar(3)", pa.array(["äöü"]), pa.array(["äöüß"]), "(c = 'äöüß')"),
    ("numeric(3,0)", pa.array([999], pa.int64()), pa.array([1000], pa.int64()), "(c = 1000)"),
    ("text", pa.array(["a"]), pa.array(["a\0b"]), r"(c = 'a\x00b')"),
    ("text", pa.array(["a"]), pa.array([b"\xff"], pa.binary()).cast(pa.string(), safe=False), "'c'"),
    ("jsonb", pa.array(["{}"]), pa.array(["{"]), "(c = '{')"),
    ("text NOT NULL", pa.array(["a"]), pa.array([None], pa.string()), "(c = null)"),
    ("int CONSTRAINT small CHECK (c < 9)", pa.array([1], pa.int32()), pa.array([9], pa.int32()), "(c = 9)"),
    ("text REFERENCES known DEFERRABLE INITIALLY DEFERRED", pa.array(["a"]), pa.array(["b"]), "(c = 'b')"),
    ("text, UNIQUE (id, c)", pa.array(["a"]), pa.array([LARGE]), f", c = '{LARGE[:59]}…)"),  # for the index
    ("text, EXCLUDE USING btree (c WITH =) WHERE (c <> 'a')", pa.array(["a"]), pa.array(["b"]), None),  # takes one
]


@pytest.mark.parametrize("upsert", [False, True])
@pytest.mark.parametrize(("declared", "good", "bad", "value"), CASES)
def test_the_record_the_column_and_the_value_are_named(
    database: Database, tmp_path: Path, *, declared: str, good: pa.Array, bad: pa.Array, value: str | None, upsert: bool
) -> None:
    driver = driver_of(database, tmp_path, declared, **({"upsert": True, "key": ("id",)} if upsert else {}))
    records = Records(good, bad)
    if value is None:
        database.sql("INSERT INTO rows VALUES ('before', 'b')")
    error = refused_rows.locate(refused(driver, records), RANGES, driver.sink, records.rows)
    assert error.reason is Reason.ROW_REFUSED
    assert f"record {B}@{BAD}: " in error.message
    assert (value or "(c = 'b')") in error.message, error.message
    assert error.message.endswith(f"; {REMEDY}")
    assert error.message.count(REMEDY) == 1
    assert "of the task" not in error.message
    assert database.sql("SELECT count(*) FROM rows WHERE id <> 'before'") == [["0"]]
    assert database.sql('SELECT partition, "offset" FROM ackwright.positions ORDER BY 1') == [["0", "100"], ["1", "50"]]


class Unkeyed(Records):
    """The rows of records, of which one has no key."""

    def rows(self, lane: Lane, start: int, until: int) -> pa.Table:
        rows = super().rows(lane, start, until)
        keys = [None if key == f"{B}@{BAD}" else key for key in rows.column("id").to_pylist()]
        gone = pa.array([key is None for key in keys])
        return rows.set_column(0, "id", pa.array(keys, pa.string())).append_column("gone", gone)


@pytest.mark.parametrize("deletes", [False, True])
def test_a_record_whose_key_is_null_is_named(database: Database, tmp_path: Path, *, deletes: bool) -> None:
    """Also if its row is to be deleted: it would delete none, and nobody would know."""
    deleted = {"deleted_column": "gone"} if deletes else {}
    declared = "int" if deletes else "int, gone boolean"
    driver = driver_of(database, tmp_path, declared, upsert=True, key=("id",), **deleted)
    records = Unkeyed(pa.array([1], pa.int32()), pa.array([1], pa.int32()))
    error = refused_rows.locate(refused(driver, records), RANGES, driver.sink, records.rows)
    assert error.message.startswith(f"record {B}@{BAD}: ")
    assert "id of the key is null" in error.message
    assert error.message.endswith(f"; {REMEDY}")
    assert error.message.count(REMEDY) == 1
    assert database.sql("SELECT count(*) FROM rows") == [["0"]]


def test_a_key_that_is_there_already_is_named(database: Database, tmp_path: Path) -> None:
    driver = driver_of(database, tmp_path, "int")
    database.sql(f"INSERT INTO rows VALUES ('{B}@{BAD}', 1)")  # noqa: S608
    records = Records(pa.array([1], pa.int32()), pa.array([1], pa.int32()))
    error = refused_rows.locate(refused(driver, records), RANGES, driver.sink, records.rows)
    assert f"record {B}@{BAD}: " in error.message
    assert f"(id = '{B}@{BAD}')" in error.message


def test_a_row_that_is_taken_the_second_time_leaves_the_error_as_it_is(database: Database, tmp_path: Path) -> None:
    driver = driver_of(database, tmp_path, "varchar(3)")
    records = Records(pa.array(["abc"]), pa.array(["abcd"]))
    error = refused(driver, records)
    database.sql("ALTER TABLE rows ALTER c TYPE text")
    assert refused_rows.locate(error, RANGES, driver.sink, records.rows) is error
    assert "in row 16, column c of the task" in error.message


def test_a_server_that_is_gone_leaves_the_error_as_it_is(database: Database, tmp_path: Path) -> None:
    driver = driver_of(database, tmp_path, "varchar(3)")
    records = Records(pa.array(["abc"]), pa.array(["abcd"]))
    error = refused(driver, records)
    (database.credentials / "password").write_text("wrong")
    assert refused_rows.locate(error, RANGES, driver.sink, records.rows) is error
