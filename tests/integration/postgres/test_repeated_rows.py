"""Tables that refuse a row that at-least-once delivers again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.sinks.postgres.sink import PostgresStore
from integration.support.postgres import Database
from integration.support.postgres_stores import job

TRIGGER = """
CREATE FUNCTION once() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN IF EXISTS (SELECT FROM rows WHERE id = new.id) THEN RETURN NULL; END IF; RETURN new; END';
CREATE TRIGGER once BEFORE INSERT ON rows FOR EACH ROW EXECUTE FUNCTION once();
"""
LETTERS = """
CREATE TABLE letters (pipeline text, source_topic text, source_partition int, source_offset bigint, key bytea,
    value bytea, headers text, reason text, PRIMARY KEY (source_topic, source_partition, source_offset))
"""


def store(database: Database, directory: Path, guarantee: Guarantee, **fields: Any) -> PostgresStore:
    return PostgresStore(replace(job(directory, database, **fields), guarantee=guarantee))


@pytest.mark.parametrize(
    ("columns", "fields", "is_refused"),
    [
        ("id bigint PRIMARY KEY, v text", {}, True),
        ("id bigint, v text UNIQUE", {}, True),
        ("id bigint, v text, n serial PRIMARY KEY", {}, False),  # the server numbers them
        ("id bigint, v text", {}, False),
        ("id bigint PRIMARY KEY, v text", {"upsert": True, "key": ("id",)}, False),
    ],
)
def test_a_table_that_refuses_a_row_twice_is_not_for_at_least_once(
    spark: SparkSession, database: Database, tmp_path: Path, columns: str, fields: dict[str, Any], *, is_refused: bool
) -> None:
    database.sql(f"CREATE TABLE rows ({columns})")
    rows = spark.createDataFrame([], "id bigint, v string")
    store(database, tmp_path, Guarantee.EXACTLY_ONCE, **fields).check(rows)
    store(database, tmp_path, Guarantee.AT_MOST_ONCE, **fields).check(rows)
    at_least_once = store(database, tmp_path, Guarantee.AT_LEAST_ONCE, **fields)
    if not is_refused:
        at_least_once.check(rows)
        at_least_once.prepare(rows)
        return
    for call in (at_least_once.check, at_least_once.prepare):
        with pytest.raises(JobError, match="refuses a row that is delivered again") as caught:
            call(rows)
        assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_a_trigger_may_leave_out_a_row_that_is_there(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.sql(f"CREATE TABLE rows (id bigint PRIMARY KEY); {TRIGGER}")
    store(database, tmp_path, Guarantee.AT_LEAST_ONCE).check(spark.createDataFrame([], "id bigint"))


def test_the_same_holds_for_the_table_of_dead_letters(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    database.sql(f"CREATE TABLE rows (id bigint); {LETTERS}")
    rows = spark.createDataFrame([], "id bigint")
    store(database, tmp_path, Guarantee.EXACTLY_ONCE, dead_letter_table="letters").check(rows)
    with pytest.raises(JobError, match=r"table public\.letters does not fit") as caught:
        store(database, tmp_path, Guarantee.AT_LEAST_ONCE, dead_letter_table="letters").check(rows)
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
