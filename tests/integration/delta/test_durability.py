"""What of a table in a directory is flushed to the disk, and before which step. delta-rs flushes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.delta.sink import DeltaStore
from integration.support.delta_stores import Table, job
from integration.support.staged_drivers import A, Driver, Frame

_CHECKPOINTS = {"timeout.ms": "2000", "checkpoint.interval": "10"}


class Flushes:
    """The files and directories that are passed to os.fsync, with the files of the log that were there then."""

    def __init__(self, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log, self.calls = log, list[tuple[Path, frozenset[str]]]()
        fsync = os.fsync

        def recorded(descriptor: int) -> None:
            path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
            self.calls.append((path, frozenset(os.listdir(log)) if log.exists() else frozenset()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", recorded)

    def times(self, name: str) -> int:
        """How often a file of the log was flushed."""
        return [path for path, _ in self.calls].count(self.log / name)

    def is_before(self, name: str, condition: Callable[[frozenset[str]], bool]) -> bool:
        """Whether a file of the log was flushed, and then the directory, while its files met the condition."""
        met = [path for path, names in self.calls if condition(names)]
        return self.log / name in met and self.log in met[met.index(self.log / name) :]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "above" / "table")


@pytest.fixture
def flushes(table: Table, monkeypatch: pytest.MonkeyPatch) -> Flushes:
    return Flushes(table.path / "_delta_log", monkeypatch)


def entry(number: int) -> str:
    return f"{number:020}.json"


def test_a_table_is_durable_when_it_is_created(table: Table, tmp_path: Path, flushes: Flushes) -> None:
    """Also the names of its directories, in those above them."""
    frame: Any = Frame()
    DeltaStore(job(tmp_path, table.path)).prepare(frame)
    assert flushes.is_before(entry(0), lambda names: entry(1) not in names)
    assert {tmp_path, table.path.parent, table.path} <= {path for path, _ in flushes.calls}


def test_the_entry_of_a_killed_driver_is_durable_before_the_next_one(
    table: Table, tmp_path: Path, flushes: Flushes
) -> None:
    """The driver was killed after delta-rs had created the entry. It is flushed once, and not with each batch."""
    spec = job(tmp_path, table.path)
    Driver(spec).deliver(Range(A, 0, 5))
    last = table.version + 1
    commit(table)
    assert flushes.times(entry(last)) == 0
    driver = Driver(spec)
    assert flushes.is_before(entry(last), lambda names: entry(last + 1) not in names)
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.DONE, 4)
    assert {flushes.times(entry(number)) for number in range(last, table.version + 1)} == {1}


def test_entries_of_other_programs_are_durable_before_the_next_one(
    table: Table, tmp_path: Path, flushes: Flushes
) -> None:
    driver = Driver(job(tmp_path, table.path))
    others = [table.version + 1, table.version + 2]
    for _ in others:
        commit(table)
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)
    for number in others:
        assert flushes.is_before(entry(number), lambda names: entry(others[-1] + 1) not in names)


def commit(table: Table) -> None:
    """As a program that flushes nothing."""
    handle = DeltaTable(str(table.path))
    properties = CommitProperties(app_transactions=[Transaction("another", 1)])
    handle.create_write_transaction([], "append", handle.schema(), [], commit_properties=properties)


def test_a_checkpoint_is_durable_before_the_entries_that_it_replaces_are_removed(
    table: Table, tmp_path: Path, flushes: Flushes
) -> None:
    driver = Driver(job(tmp_path, table.path, commit=_CHECKPOINTS))
    for offset in range(10):
        for path in flushes.log.glob("*.json"):
            os.utime(path, (0, 0))  # they have expired
        driver.deliver(Range(A, offset, offset + 1))
    assert not (flushes.log / entry(0)).exists()
    checkpoint = min(flushes.log.glob("*.checkpoint.parquet")).name
    for name in (checkpoint, "_last_checkpoint"):
        assert flushes.is_before(name, lambda names: entry(0) in names)


def test_a_checkpoint_of_a_killed_driver_is_durable_before_the_next_commit(
    table: Table, tmp_path: Path, flushes: Flushes
) -> None:
    spec = job(tmp_path, table.path)
    Driver(spec)
    last = table.version
    DeltaTable(str(table.path)).create_checkpoint()
    Driver(spec)
    for name in (f"{last:020}.checkpoint.parquet", "_last_checkpoint"):
        assert flushes.is_before(name, lambda names: entry(last + 1) not in names)
