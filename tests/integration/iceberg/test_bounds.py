"""Bounds of columns in the manifests of a real table: readers skip the files of which these exclude a filter's rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, DoubleType, IntegerType, LongType, StringType, StructField, StructType

from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg import files
from ackwright_stream.sinks.staged import parquet
from integration.support.iceberg_stores import Table, job, place
from integration.support.parquet_rows import rows_of
from integration.support.staged_drivers import A, Driver

LONG = "z" * 5000  # Arrow has no bounds for a row group with a value that is longer than 4 KB
NESTED = StructType([StructField("t", StringType()), StructField("n", LongType())])
COLUMNS = StructType(
    [
        StructField("lane", IntegerType()),
        StructField("n", LongType()),
        StructField("text", StringType()),
        StructField("many", ArrayType(StringType())),
        StructField("part", NESTED),
        StructField("d", DoubleType()),
    ]
)


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each batch of rows becomes a row group."""
    monkeypatch.setattr(parquet, "_BUFFERED", 0)


def deliver(driver: Driver, *texts: list[str | None]) -> Path:
    """Delivers a file with a row group for each of these lists of texts. Returns its path."""
    batches, start = [], 0
    for group in texts:
        offsets = range(start, start + len(group))
        columns = {
            "lane": pa.array([0] * len(group), pa.int32()),
            "n": pa.array(offsets, pa.int64()),
            "text": pa.array(group, pa.string()),
            "many": pa.array([[text] for text in group], pa.list_(pa.string())),
            "part": pa.array(
                [{"t": text, "n": n} for n, text in zip(offsets, group, strict=True)],
                pa.struct([("t", pa.string()), ("n", pa.int64())]),
            ),
            "d": pa.array([float(n) for n in offsets], pa.float64()),
        }
        batches.append(pa.record_batch(columns))
        start += len(group)
    staged = driver.stage(batches)
    assert driver.commit([Range(A, 0, start)], staged) == (Outcome.DONE, start)
    (file,) = driver.sink.staged(staged.of_tasks)
    path = place(file.path)
    assert pq.read_metadata(path).num_row_groups == len(texts)
    return path


def selected(table: Table, row_filter: str) -> list[int]:
    """The offsets of the rows that a reader selects, which skips files by the bounds in manifests."""
    return sorted(table.handle().scan(row_filter=row_filter).to_arrow()["n"].to_pylist())


def bounded(table: Table) -> tuple[set[str], set[str]]:
    """The columns with a lower and with an upper bound in the manifest of the table's file."""
    names = table.handle().schema()
    (file,) = table.files().values()
    lower, upper = (
        {names.find_column_name(bound["key"]) or "" for bound in file[f"{side}_bounds"] or ()}
        for side in ("lower", "upper")
    )
    return lower, upper


@pytest.mark.parametrize("group", [[LONG], ["a", LONG], [f"{LONG}a", "m", None]])
def test_a_reader_selects_the_rows_of_a_row_group_without_bounds(
    table: Table, tmp_path: Path, group: list[str | None]
) -> None:
    """The bounds of the others do not include its values."""
    path = deliver(Driver(job(tmp_path, table), columns=COLUMNS), ["b", "c"], group, [None, None])
    for lowest in ("z", "m", "c"):
        expected = sorted(row["n"] for row in rows_of([path]) if row["text"] is not None and row["text"] >= lowest)
        assert selected(table, f"text >= '{lowest}'") == expected
    below = sorted(row["n"] for row in rows_of([path]) if row["text"] is not None and row["text"] < "b")
    assert selected(table, "text < 'b'") == below
    assert bounded(table) == ({"lane", "n", "d"}, {"lane", "n", "d"}), "other columns keep their bounds"


def test_a_row_group_with_nulls_alone_leaves_the_bounds_of_the_others(table: Table, tmp_path: Path) -> None:
    deliver(Driver(job(tmp_path, table), columns=COLUMNS), ["b", "c"], [None, None])
    assert bounded(table) == ({"lane", "n", "text", "d"}, {"lane", "n", "text", "d"})
    assert selected(table, "text >= 'c'") == [1]
    assert selected(table, "text > 'c'") == []


def test_control_the_bounds_of_the_other_row_groups_hide_rows(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyiceberg describes the file."""
    monkeypatch.setattr(files, "_unbounded", lambda file, ids: set())
    path = deliver(Driver(job(tmp_path, table), columns=COLUMNS), ["b", "c"], [LONG])
    assert [row["n"] for row in rows_of([path]) if row["text"] >= "z"] == [2]
    assert selected(table, "text >= 'z'") == []
