"""Positions of a directory that people set or remove, and what the driver itself removes."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ackwright_stream.audit_sinks.files import FilesReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.files import sink as sink_module
from ackwright_stream.sinks.files.sink import FilesStore
from ackwright_stream.sinks.files.storage import Directory
from integration.support.files_stores import A, Driver, Files, directory, job


def test_positions_that_are_set_by_hand_are_noticed(files: Files, tmp_path: Path) -> None:
    """By the change of docs/files.md, while the driver runs."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    set_by_hand(files, 40)
    with pytest.raises(JobError) as caught:
        driver.deliver(Range(A, 10, 20))
    assert caught.value.reason is Reason.POSITIONS_MOVED
    position = FilesStore(spec).peek([A])[A]
    assert position is not None
    assert (position.offset, position.is_foreign) == (40, True)


def set_by_hand(files: Files, offset: int) -> None:
    """As docs/files.md has it."""
    entries = sorted(Path(files.path, "_ackwright/state").iterdir())
    state = json.loads(entries[-1].read_text())
    state["lanes"][0]["position"] |= {"offset": offset, "driver": 0}
    (entries[-1].parent / f"{int(entries[-1].stem) + 1:020}.json").write_text(json.dumps(state))


@pytest.mark.parametrize("suffix", [".json~", ".json.bak", "-copy.json", ".JSON"])
def test_an_editors_backup_is_no_entry(files: Files, tmp_path: Path, suffix: str) -> None:
    """Of the copy that docs/files.md asks for, before its change. The audit reads the same entry."""
    spec, spark = job(tmp_path, files.path), cast(Any, None)
    driver = Driver(spec)
    set_by_hand(files, 40)
    entry = max(Path(files.path, "_ackwright/state").iterdir())
    backup = entry.with_name(f"{entry.stem}{suffix}")
    backup.write_text(entry.read_text().replace('"offset": 40', '"offset": 0'))
    position = FilesStore(spec).peek([A])[A]
    assert position is not None
    assert (position.offset, position.is_foreign) == (40, True)
    with FilesReader(spark, spec) as reader:
        assert reader.positions([("in", 0)]) == {("in", 0): 40}
    for offset in range(41, 80):
        driver.sink.advance({A: replace(position, offset=offset, driver=1)}, driver.membership)
    assert files.settled() == 79
    assert (backup.exists(), entry.exists()) == (True, False), "only entries are removed"


def test_a_position_that_is_set_back_halts_until_the_later_files_are_removed(files: Files, tmp_path: Path) -> None:
    """A driver that was still running may have created one of them after the others were removed."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    for start in (0, 10, 20):
        driver.deliver(Range(A, start, start + 10))
    Path(files.path, directory(), f"{10:020}.parquet").unlink()
    set_by_hand(files, 10)
    with pytest.raises(JobError, match=f"was set to 10 by hand, and .*/{20:020}.parquet is still there") as caught:
        FilesStore(spec).peek([A])
    assert caught.value.reason is Reason.TABLE_UNSUITABLE
    Path(files.path, directory(), f"{20:020}.parquet").unlink()
    position = FilesStore(spec).peek([A])[A]
    assert position is not None
    assert (position.offset, position.is_foreign) == (10, True)


def test_rows_that_move_no_position_are_not_listed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At-least-once writes such a file for each batch."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    driver.prepared(Range(A, 10, 20))()
    listed: list[str] = []
    names = Directory.names

    def recorded(storage: Directory, *arguments: Any) -> Any:
        answer = names(storage, *arguments)
        listed.extend(answer)
        return answer

    monkeypatch.setattr(Directory, "names", recorded)
    position = FilesStore(spec).peek([A])[A]
    assert position is not None
    assert position.offset == 10
    assert not [name for name in listed if name.startswith("rows-")]


@pytest.mark.parametrize("everything", [True, False])
def test_positions_that_are_gone_are_noticed(files: Files, tmp_path: Path, *, everything: bool) -> None:
    """By the driver that had some, and by the next one, which sees files."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    shutil.rmtree(files.path if everything else f"{files.path}/_ackwright")
    stores = [driver.sink] if everything else [driver.sink, FilesStore(spec)]
    for store in stores:
        with pytest.raises(JobError, match="it is not known what was delivered") as caught:
            store.join([A])
        assert caught.value.reason is Reason.POSITION_LOST


@pytest.mark.parametrize("recorded", [True, False])
def test_files_that_are_removed_are_delivered_again_only_if_their_end_was_not_recorded(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, recorded: bool
) -> None:
    """As by a rule of a bucket that removes old files, also the newest one of a lane that is idle."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    monkeypatch.setattr(sink_module, "_MEMBER_FOR_S", 0)
    if recorded:
        monkeypatch.setattr(sink_module, "_RECORDED_EVERY_S", 0)
    assert driver.sink.is_member()
    assert files.settled() == (10 if recorded else 0)
    assert driver.deliver(Range(A, 10, 12)) == (Outcome.DONE, 2), "tasks continue where they were"
    for path in Path(files.path, directory()).iterdir():
        path.unlink()
    position = Driver(spec).sink.read([A])[A]
    assert position is not None
    assert position.offset == (10 if recorded else 0)


def test_the_entries_of_drivers_are_removed_when_they_are_old(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    for offset in range(1, 80):
        driver.lanes.advance_all([Range(A, 0, offset)])
    assert files.settled() == 79
    assert len(list(Path(files.path, "_ackwright/state").iterdir())) <= 33


def test_what_killed_tasks_have_left_behind_is_removed_after_a_day(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    Driver(spec)
    old, young = (Path(files.path, "_ackwright/tmp", name) for name in ("old", "young"))
    for path in (old, young):
        path.write_bytes(b"rows")
    os.utime(old, (0, 0))
    Driver(spec)
    assert files.temporary() == ["young"]
