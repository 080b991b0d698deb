"""What the protocol relies on in delta-rs, and what it must not rely on. A new version of delta-rs has to pass this."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction, RemoveAction


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table with one version."""
    DeltaTable.create(str(tmp_path), Schema([Field("n", PrimitiveType("long"))]))
    return str(tmp_path)


def commit(handle: DeltaTable, name: str, number: int, *files: Path, retries: int | None = None) -> None:
    added: list[AddAction | RemoveAction] = [
        AddAction(f.name, f.stat().st_size, {}, 1, True, json.dumps({"numRecords": 1})) for f in files
    ]
    properties = CommitProperties(max_commit_retries=retries, app_transactions=[Transaction(name, number)])
    handle.create_write_transaction(added, "append", handle.schema(), [], commit_properties=properties)


def test_files_of_others_and_application_transactions_are_one_version(path: str) -> None:
    file = Path(path, "x.parquet")
    pq.write_table(pa.table({"n": pa.array([5], pa.int64())}), file)
    commit(DeltaTable(path), "a/lane", 7, file, retries=0)
    table = DeltaTable(path)
    assert (table.version(), table.transaction_version("a/lane")) == (1, 7)
    assert table.to_pyarrow_table().to_pydict() == {"n": [5]}


def test_without_retries_every_stale_handle_is_refused(path: str) -> None:
    stale = DeltaTable(path)
    commit(DeltaTable(path), "another", 1)
    with pytest.raises(CommitFailedError):
        commit(stale, "a", 2, retries=0)
    assert (DeltaTable(path).version(), DeltaTable(path).transaction_version("a")) == (1, None)


def test_by_default_a_stale_handle_is_refused_only_for_a_transaction_of_the_same_name(path: str) -> None:
    """Which is why commits have the generation's, and why they are not left to the default."""
    stale, another = DeltaTable(path), DeltaTable(path)
    commit(DeltaTable(path), "generation", 1)
    with pytest.raises(CommitFailedError, match="Concurrent transaction failed"):
        commit(stale, "generation", 2)
    commit(another, "lane", 2)
    assert (DeltaTable(path).version(), DeltaTable(path).transaction_version("lane")) == (2, 2), "it was rebased"


def test_a_fresh_handle_accepts_a_lower_number(path: str) -> None:
    """So delta-rs does not protect positions from moving backwards."""
    commit(DeltaTable(path), "lane", 7)
    commit(DeltaTable(path), "lane", 3)
    assert DeltaTable(path).transaction_version("lane") == 3


def test_a_handle_stays_at_its_version_until_it_is_updated(path: str) -> None:
    handle = DeltaTable(path)
    commit(handle, "lane", 7)
    assert (handle.version(), handle.transaction_version("lane")) == (0, None)
    handle.update_incremental()
    assert (handle.version(), handle.transaction_version("lane")) == (1, 7)


def test_transactions_are_in_checkpoints(path: str) -> None:
    commit(DeltaTable(path), "lane", 7)
    DeltaTable(path).create_checkpoint()
    Path(path, "_delta_log", f"{0:020}.json").unlink()
    assert DeltaTable(path).transaction_version("lane") == 7
    (checkpoint,) = Path(path, "_delta_log").glob("*.checkpoint.parquet")
    stored = [row for row in pq.read_table(checkpoint).column("txn").to_pylist() if row and row["appId"]]
    assert [(row["appId"], row["version"]) for row in stored] == [("lane", 7)]
