"""The files of decisions beside the state, of which a table names the last one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ackwright_stream.audit_decisions import History
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import StateSettings
from ackwright_stream.sinks.staged.decisions import DecisionFiles, note_for_audit
from unit.stream.decided import DECISION, FIRST, OFFSETS, SECOND


def state_in(directory: Path) -> StateSettings:
    return StateSettings(1, str(directory), "append", None, None, 1000)


def test_a_decision_is_read_by_its_hash(tmp_path: Path) -> None:
    files = DecisionFiles(state_in(tmp_path))
    first, second = files.write("one"), files.write("two")
    assert [files.read(first), files.read(second)] == ["one", "two"]
    assert files.write("one") == first, "a driver may decide the same again after its commit was refused"


@pytest.mark.parametrize("content", [b"", b"on", b"two", b"\xff"])
def test_a_damaged_or_missing_decision_is_not_there(tmp_path: Path, content: bytes) -> None:
    files = DecisionFiles(state_in(tmp_path))
    name = files.write("one")
    [file] = (tmp_path / "decisions").iterdir()
    file.write_bytes(content)
    assert files.read(name) is None
    files.remove(name)
    files.remove(name)
    assert files.read(name) is None
    assert not list((tmp_path / "decisions").iterdir())


def test_a_directory_that_takes_no_file_fails(tmp_path: Path) -> None:
    (tmp_path / "decisions").write_text("a file")
    with pytest.raises(JobError, match="a decision could not be written"):
        DecisionFiles(state_in(tmp_path)).write("one")


def test_the_audit_reads_the_note_of_a_decision_as_the_decision() -> None:
    decision = replace(DECISION, offsets_before=OFFSETS).to_json()
    note = note_for_audit(decision)
    assert json.loads(note).keys().isdisjoint({"state", "query", "directory"})
    assert "conf" not in note
    history = History.of_texts([note])
    assert history is not None
    assert history == History.of_texts([decision])
    assert history.last.end == {(FIRST.topic, FIRST.partition): 7, (SECOND.topic, SECOND.partition): 9}
