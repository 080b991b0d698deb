"""A PostgreSQL whose disk is full: a file system of a few megabytes for the table, which fills up for real."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from integration.support.postgres import Database, Postgres
from integration.support.postgres_stores import A, Driver, job, offsets, position, rows

ROWS = 80_000  # 2.9 MB of the table
ALL = Range(A, 0, ROWS)


@pytest.fixture
def small_disk(postgres: Postgres, tmp_path: Path) -> Iterator[Path]:
    """An empty file system of 4 MB that the server may write to."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    place = postgres.directory / f"disk-{tmp_path.name}"
    place.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", place], check=True, timeout=30)
    try:
        os.chown(place, pwd.getpwnam("postgres").pw_uid, -1)
        place.chmod(0o700)
        yield place
    finally:
        subprocess.run(["/bin/umount", "--lazy", place], check=True, timeout=30)


@pytest.fixture
def full(postgres: Postgres, small_disk: Path, tmp_path: Path) -> Iterator[Database]:
    """A database whose table for the rows is on the small disk, beside another table that takes the space."""
    database = Database(postgres, tmp_path)
    space = f"space_{database.name}"
    database.sql(f"CREATE TABLESPACE {space} LOCATION '{small_disk}'", admin=True)
    try:
        database.sql(f"GRANT CREATE ON TABLESPACE {space} TO {database.role}", admin=True)
        database.sql(f"CREATE TABLE rows (lane int, n bigint) TABLESPACE {space}")
        database.sql(f"CREATE TABLE other TABLESPACE {space} AS SELECT * FROM generate_series(1, 60000)")  # noqa: S608 (2.2 MB)
        yield database
    finally:
        database.sql("DROP TABLE IF EXISTS rows, other; CHECKPOINT", admin=True)
        database.sql(f"DROP TABLESPACE {space}", admin=True)


def free_space(database: Database) -> None:
    """Removes the other table."""
    database.sql("DROP TABLE other; CHECKPOINT", admin=True)
    database.sql("VACUUM rows")  # rows that were rolled back have kept their space


def refused(call: Callable[[], Any]) -> None:
    """Asserts that the call fails, because the disk is full."""
    with pytest.raises(JobError) as caught:
        call()
    assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    assert "No space left on device" in caught.value.message
    assert caught.value.message.endswith("; free space on the disk of the server; the pipeline resumes by itself")


def test_a_full_disk_stops_the_pipeline_and_loses_and_repeats_nothing(full: Database, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, full))
    for _ in range(2):
        refused(lambda: driver.task().advance(0, [ALL], rows(A, 0, ROWS, 10_000)))
        assert (offsets(full), position(full)) == ([], 0)
    free_space(full)
    assert driver.task().advance(0, [ALL], rows(A, 0, ROWS, 10_000)) == (Outcome.DONE, ROWS)
    assert (offsets(full), position(full)) == (list(range(ROWS)), ROWS)


def test_a_full_disk_loses_nothing_at_least_once(full: Database, tmp_path: Path) -> None:
    spec = replace(job(tmp_path, full), guarantee=Guarantee.AT_LEAST_ONCE)
    refused(Driver(spec).prepared(ALL))
    assert (offsets(full), position(full)) == ([], 0)
    free_space(full)
    following = Driver(spec)
    assert following.prepared(ALL)() == ROWS
    following.lanes.advance_all([Range(A, 0, ROWS)])
    assert (offsets(full), position(full)) == (list(range(ROWS)), ROWS)


def test_a_full_disk_repeats_nothing_at_most_once(full: Database, tmp_path: Path) -> None:
    spec = replace(job(tmp_path, full), guarantee=Guarantee.AT_MOST_ONCE)
    driver = Driver(spec)
    assert driver.task().advance(0, [ALL]) == (Outcome.DONE, 0)
    refused(driver.prepared(ALL))
    free_space(full)
    following, batch = Driver(spec), Range(A, ROWS, ROWS + 10)
    assert following.task().advance(0, [ALL]) == (Outcome.SKIPPED, 0)
    assert following.task().advance(0, [batch]) == (Outcome.DONE, 0)
    assert following.prepared(batch)() == 10
    assert (offsets(full), position(full)) == (list(range(ROWS, ROWS + 10)), ROWS + 10)
