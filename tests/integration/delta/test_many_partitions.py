"""A task whose rows have more partition values than it may have files open."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.staged import parquet
from integration.support.delta_stores import Table, job
from integration.support.staged_drivers import A, Driver

COLUMNS = StructType([StructField("n", LongType()), StructField("user", StringType())])
VALUES, EACH = 250, 2  # partition values, and batches that each have a row with every one of them


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


@pytest.fixture
def spec(table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """A pipeline whose tasks write each batch of rows to their files at once."""
    monkeypatch.setattr(parquet, "_BUFFERED", 0)
    return job(tmp_path, table.path, partition_columns=("user",))


def rows() -> Iterator[pa.RecordBatch]:
    for number in range(EACH):
        users = [None if n == 7 else f"u{n}" for n in range(VALUES)]
        numbers = range(number * VALUES, (number + 1) * VALUES)
        yield pa.record_batch({"n": pa.array(numbers, pa.int64()), "user": pa.array(users)})


@contextmanager
def limited(more: int) -> Iterator[None]:
    """This process may open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_partition_values_than_files_may_be_open(table: Table, spec: JobSpec) -> None:
    driver = Driver(spec, columns=COLUMNS)
    with limited(more=VALUES // 2):
        staged = driver.stage(rows())
    assert driver.commit([Range(A, 0, VALUES * EACH)], staged) == (Outcome.DONE, VALUES * EACH)
    assert sorted(row["n"] for row in table.rows()) == list(range(VALUES * EACH))
    values = {row["n"] % VALUES: row["user"] for row in table.rows()}
    assert values == {n: None if n == 7 else f"u{n}" for n in range(VALUES)}


def test_the_largest_file_is_closed_for_another_one(
    table: Table, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_OPEN", 2)
    driver = Driver(spec, columns=COLUMNS)
    batches = [
        pa.record_batch({"n": pa.array(range(len(users)), pa.int64()), "user": pa.array([*users])})
        for users in ("aaab", "ab", "c", "abc")
    ]
    driver.commit([Range(A, 0, 10)], driver.stage(batches))
    assert Counter(values["user"] for values in table.files().values()) == {"a": 2, "b": 1, "c": 1}
    assert Counter(row["user"] for row in table.rows()) == {"a": 5, "b": 3, "c": 2}


def test_files_that_were_closed_are_removed_if_a_later_row_is_refused(
    table: Table, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "_OPEN", 2)
    driver = Driver(spec, columns=COLUMNS)
    refused = pa.record_batch({"n": pa.array([1], pa.int64()), "user": pa.array([""])})
    with pytest.raises(JobError, match="empty text"):
        driver.stage([*rows(), refused])
    assert table.orphans() == []
