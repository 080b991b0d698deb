"""What the protocol relies on in pyiceberg and in catalogs, and what it must not rely on.

A new version of pyiceberg has to pass this.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table import Transaction
from pyiceberg.table.update import AssertCurrentSchemaId, AssertDefaultSpecId, AssertRefSnapshotId
from pyiceberg.types import LongType, NestedField, StringType

from integration.support.iceberg_stores import Table

COLUMNS = Schema(NestedField(1, "n", LongType(), required=False))


@pytest.fixture(autouse=True)
def one_table(table: Table) -> None:
    """A table without snapshots."""
    table.create(COLUMNS, properties={"format-version": "2"})


def change(handle: IcebergTable, **properties: str) -> Transaction:
    """A snapshot without files, and properties, to be committed."""
    staged = Transaction(handle)
    staged.update_snapshot().fast_append().commit()
    staged.set_properties(properties)
    return staged


def commit(handle: IcebergTable, staged: Transaction) -> None:
    """One attempt."""
    handle._do_commit(updates=staged._updates, requirements=staged._requirements)


def test_properties_alone_are_accepted_from_a_stale_handle(table: Table) -> None:
    """Which is why each commit of the sink makes a snapshot."""
    one, other = table.handle(), table.handle()
    with one.transaction() as first:
        first.set_properties({"position": "7"})
    with other.transaction() as second:
        second.set_properties({"position": "3"})
    assert table.properties()["position"] == "3"


def test_a_snapshot_without_files_is_refused_from_a_stale_handle(table: Table) -> None:
    for expected in (0, 1):  # the first snapshot of a table has another requirement
        one, other = table.handle(), table.handle()
        staged, stale = change(one, position="7"), change(other, position="3")
        assert [type(r) for r in stale._requirements] == [AssertRefSnapshotId]
        assert table.snapshots == expected
        commit(one, staged)
        with pytest.raises(CommitFailedException):
            commit(other, stale)
        assert (table.properties()["position"], table.snapshots) == ("7", expected + 1)


def test_by_default_pyiceberg_commits_again_and_both_are_in_the_table(table: Table) -> None:
    """The control of the sink, which makes one attempt and reads the table again."""
    table.handle().append(pa.table({"n": [0]}))
    one, other = table.handle(), table.handle()
    first, second = one.transaction(), other.transaction()
    for position, transaction in ((7, first), (7, second)):
        transaction.append(pa.table({"n": [1]}))
        transaction.set_properties({"position": str(position)})
    first.commit_transaction()
    second.commit_transaction()
    assert [row["n"] for row in table.rows()].count(1) == 2


def test_a_sequence_number_is_used_once_even_after_a_rollback(table: Table) -> None:
    """So a request that arrives late is refused also if the branch is where it was."""
    table.handle().append(pa.table({"n": [0]}))
    one, late = table.handle(), table.handle()
    before = one.metadata.current_snapshot_id
    assert before is not None
    stale = change(late, position="3")
    commit(one, change(one, position="7"))
    table.roll_back(before)
    assert table.handle().metadata.current_snapshot_id == before
    with pytest.raises((CommitFailedException, ValueError), match="older than last sequence number"):
        commit(late, stale)
    assert table.properties()["position"] == "7"


def test_a_changed_schema_and_changed_partitions_are_refused(table: Table) -> None:
    """They make no snapshot."""
    handle = table.handle()
    same = (
        AssertCurrentSchemaId.model_validate({"current-schema-id": handle.metadata.current_schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": handle.metadata.default_spec_id}),
    )
    with table.handle().update_schema() as schema:
        schema.add_column("s", StringType())
    with table.handle().update_spec() as spec:
        spec.add_identity("s")
    for requirement in same:
        staged = change(table.handle(), position="7")
        with pytest.raises(CommitFailedException):
            table.handle()._do_commit(updates=staged._updates, requirements=(*staged._requirements, requirement))
    assert "position" not in table.properties()


def test_properties_outlive_the_snapshots_that_set_them(table: Table) -> None:
    for n in range(3):
        handle = table.handle()
        commit(handle, change(handle, position=str(n)))
    handle = table.handle()
    old = [s.snapshot_id for s in handle.metadata.snapshots if s.snapshot_id != handle.metadata.current_snapshot_id]
    handle.maintenance.expire_snapshots().by_ids(old).commit()
    assert (table.snapshots, table.properties()["position"]) == (1, "2")
