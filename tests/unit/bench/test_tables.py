"""What the benchmarks of tables read from tables of Delta Lake and Iceberg, and what is no measurement."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from bench.tables import Commit, DeltaTables, IcebergTables, require_like_sizes, row_times
from bench.throughput import Case
from deltalake import write_deltalake

from integration.support.iceberg_server import RestCatalogServer

CASE = Case(size=100, partitions=4, batches=2, batch=10)


def test_rows_have_the_time_of_their_commit() -> None:
    commits = [Commit(30, 10, 2), Commit(10, 0, 0), Commit(20, 10, 2)]
    assert row_times(commits, CASE, files=2).tolist() == [20] * 10 + [30] * 10


@pytest.mark.parametrize(
    ("second", "words"),
    [(Commit(2, 9, 2), "19 rows instead of 20"), (Commit(2, 10, 4), "6 files instead of 4")],
    ids=["lost", "smaller files"],
)
def test_lost_rows_and_files_of_another_size_are_no_measurement(second: Commit, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        row_times([Commit(1, 10, 2), second], CASE, files=2)


def test_larger_files_of_one_candidate_are_no_measurement() -> None:
    require_like_sizes({"ours": 109.0, "Spark's": 100.0})
    with pytest.raises(RuntimeError, match=r"bytes per row: 100\.0 with ours, 111\.0 with Spark's"):
        require_like_sizes({"ours": 100.0, "Spark's": 111.0})


def test_commits_of_a_delta_table(tmp_path: Path) -> None:
    tables = DeltaTables(tmp_path)
    tables.create("rows")
    rows = pa.table({"key": pa.array([b"1", b"2", b"3"]), "value": pa.array([b"a", b"b", b"c"])})
    write_deltalake(str(tables.place("rows")), rows, mode="append")
    created, appended = sorted(tables.commits("rows"), key=lambda commit: commit.rows)
    assert (created.rows, created.files, appended.rows, appended.files) == (0, 0, 3, 1)
    assert created.time <= appended.time
    (file,) = tables.place("rows").glob("*.parquet")
    assert (created.bytes, appended.bytes) == (0, file.stat().st_size)


def test_commits_of_an_iceberg_table(tmp_path: Path) -> None:
    """A snapshot counts from the first metadata that have it."""
    tables = IcebergTables(RestCatalogServer(tmp_path))
    metadata = tables.place("rows") / "metadata"
    metadata.mkdir(parents=True)
    first = {"snapshot-id": 1, "summary": {"added-records": "10", "added-data-files": "2", "added-files-size": "99"}}
    without_rows = {"snapshot-id": 2, "summary": {}}
    for number, snapshots in enumerate(([], [first], [first, without_rows])):
        file = metadata / f"{number:05}-x.metadata.json"
        file.write_text(json.dumps({"snapshots": snapshots}))
        os.utime(file, ns=(0, number * 1_000_000))
    assert tables.commits("rows") == [Commit(1, 10, 2, 99), Commit(2, 0, 0)]
