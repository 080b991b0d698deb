"""The batches of stateful pipelines as files, in a real directory: each has its rows, its decision and the positions.

The reader shares no code with the sink. In the control a file replaces another one. See
docs/protocol.md#stateful-pipelines-into-files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.sinks.files import sink as sink_module
from ackwright_stream.sinks.files.storage import Directory, Draft
from integration.support.files_stores import A, B, Driver, Files, batch_rows, conflict, decide, job
from integration.support.stateful_pipelines import with_state


@pytest.fixture
def spec(files: Files, tmp_path: Path) -> JobSpec:
    """A jobspec that only the sink and the lanes read, with state."""
    return with_state(job(tmp_path, files.path), tmp_path / "state")


def driver_of(spec: JobSpec) -> Driver:
    """A driver that has taken the pipeline."""
    return Driver(spec, [A, B])


def last(driver: Driver) -> str | None:
    assert driver.sink.decisions is not None
    return driver.sink.decisions.last()


def batches(driver: Driver) -> list[int | None]:
    """The last batch, as the position of each lane has it."""
    return [p.batch if p else None for p in driver.sink.read([A, B]).values()]


def stored(files: Files) -> list[tuple[str, str, int]]:
    """The file of each batch, with its decision and the offset of lane A behind it."""
    footers = ((name, files.footer(name)) for name in files.names())
    return [
        (Path(name).stem.lstrip("0") or "0", footer["decision"], json.loads(footer["positions"])[0]["offset"])
        for name, footer in footers
    ]


def test_rows_positions_and_decision_are_one_file(files: Files, spec: JobSpec) -> None:
    """Each position has the number of the batch, also that of a lane that does not move."""
    driver = driver_of(spec)
    assert (last(driver), batches(driver)) == (None, [None, None])
    assert decide(driver, 0, 0, 10) == 10
    assert decide(driver, 1, 10, 10, ()) == 0
    assert decide(driver, 2, 10, 15) == 5
    assert (last(driver), batches(driver)) == ("decision 2", [2, 2])
    assert files.offsets() == list(range(15))
    assert stored(files) == [("0", "decision 0", 10), ("1", "decision 1", 10), ("2", "decision 2", 15)]
    assert files.temporary() == []


def test_earlier_decisions_are_read_newest_first_up_to_a_file_that_is_missing(files: Files, spec: JobSpec) -> None:
    driver = driver_of(spec)
    assert driver.sink.decisions is not None
    assert list(driver.sink.decisions.earlier()) == []
    for batch in range(5):
        decide(driver, batch, batch, batch + 1)
    assert list(driver.sink.decisions.earlier()) == [f"decision {batch}" for batch in range(3, -1, -1)]
    Path(files.path, files.names()[1]).unlink()
    assert list(driver.sink.decisions.earlier()) == ["decision 3", "decision 2"]


def test_the_next_driver_continues_behind_the_last_file(files: Files, spec: JobSpec) -> None:
    """Also if the files were removed since a driver has recorded how far batches are decided."""
    decide(driver_of(spec), 0, 0, 10)
    second = driver_of(spec)
    assert (last(second), batches(second)) == ("decision 0", [0, 0])
    decide(second, 1, 10, 15)
    second.lanes.stop({A: 15, B: 0})
    for name in files.names():
        Path(files.path, name).unlink()
    third = driver_of(spec)
    assert (last(third), batches(third)) == ("decision 1", [1, 1])
    decide(third, 2, 15, 20)
    assert (files.offsets(), stored(files)) == (list(range(15, 20)), [("2", "decision 2", 20)])


def test_a_last_file_that_is_removed_before_it_was_recorded_is_decided_again(files: Files, spec: JobSpec) -> None:
    """The running driver notices that, and does not continue behind the removed batch."""
    driver = driver_of(spec)
    decide(driver, 0, 0, 10)
    driver = driver_of(spec)
    decide(driver, 1, 10, 15)
    Path(files.path, files.names()[-1]).unlink()
    conflict(lambda: decide(driver, 2, 15, 20), "expects")
    following = driver_of(spec)
    assert (last(following), batches(following)) == ("decision 0", [0, 0])


def test_an_error_of_the_rows_leaves_nothing(files: Files, spec: JobSpec) -> None:
    driver = driver_of(spec)

    def broken() -> Iterator[Any]:
        yield from batch_rows(0, 10)
        raise JobError(Reason.TOPIC_REPLACED, "the last one")

    with pytest.raises(JobError, match="the last one"):
        decide(driver, 0, 0, 10, broken())
    assert (files.names(), files.temporary(), batches(driver)) == ([], [], [None, None])


def test_a_driver_that_was_overtaken_is_refused(files: Files, spec: JobSpec) -> None:
    """Also by a batch that moves no lane."""
    older = driver_of(spec)
    decide(older, 0, 0, 10)
    driver_of(spec)
    conflict(lambda: decide(older, 1, 10, 10, ()), "another driver has joined")
    assert stored(files) == [("0", "decision 0", 10)]


def zombie_decides_first(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The driver that has taken the pipeline from one that was asleep, and decides its next batch all the same."""
    older = driver_of(spec)
    decide(older, 0, 0, 10)
    newer: list[Driver] = []

    def overtaken() -> Iterator[Any]:
        yield from batch_rows(10, 15)
        newer.append(driver_of(spec))

    # The zombie has compared the generation before it fell asleep.
    monkeypatch.setattr(sink_module.FilesStore, "compares", False)
    decide(older, 1, 10, 15, overtaken())
    monkeypatch.setattr(sink_module.FilesStore, "compares", True)
    return newer[0]


def test_a_zombie_that_is_faster_decides_and_its_successor_restarts_from_its_decision(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = zombie_decides_first(spec, monkeypatch)
    assert last(newer) == "decision 0", "as of the positions that it has read"
    conflict(lambda: decide(newer, 1, 10, 17), "expects")
    again = driver_of(spec)
    assert (last(again), batches(again)) == ("decision 1", [1, 1])
    decide(again, 2, 15, 17)
    assert files.offsets() == list(range(17))


def test_a_zombie_that_is_slower_meets_the_file_of_its_successor(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_module.FilesStore, "compares", False)
    older = driver_of(spec)

    def overtaken() -> Iterator[Any]:
        yield from batch_rows(0, 10)
        decide(driver_of(spec), 0, 0, 7)

    conflict(lambda: decide(older, 0, 0, 10, overtaken()), "was created since the last decision was read")
    assert (files.offsets(), stored(files)) == (list(range(7)), [("0", "decision 0", 7)])


def test_control_a_file_that_replaces_another_one_loses_rows(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control of the test above: the successor continues behind a batch that is not there any more."""
    monkeypatch.setattr(sink_module.FilesStore, "compares", False)
    create = Directory.create

    def replaced(self: Directory, path: str, draft: Draft) -> bool:
        if path.startswith("batches/"):
            Path(files.path, path).unlink(missing_ok=True)
        return create(self, path, draft)

    older = driver_of(spec)
    newer: list[Driver] = []

    def overtaken() -> Iterator[Any]:
        yield from batch_rows(0, 4)
        newer.append(driver_of(spec))
        decide(newer[0], 0, 0, 7)
        decide(newer[0], 1, 7, 10)

    monkeypatch.setattr(Directory, "create", replaced)
    decide(older, 0, 0, 4, overtaken())
    assert files.offsets() == [0, 1, 2, 3, 7, 8, 9]


@pytest.mark.parametrize("arrives", [True, False], ids=["created", "lost"])
def test_after_an_unknown_outcome_positions_and_decision_are_of_one_batch(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    driver = driver_of(spec)
    decide(driver, 0, 0, 10)
    create = Directory.create

    def unanswered(self: Directory, path: str, draft: Draft) -> bool:
        if arrives:
            create(self, path, draft)
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Directory, "create", unanswered)
        with pytest.raises(JobError, match="no answer"):
            decide(driver, 1, 10, 15)
    following = driver_of(spec)
    number, end = (1, 15) if arrives else (0, 10)
    assert (last(following), batches(following)) == (f"decision {number}", [number, number])
    assert files.offsets() == list(range(end))
    decide(following, number + 1, end, 20)
    assert files.offsets() == list(range(20))


def test_a_new_state_continues_the_numbers_of_the_files(files: Files, spec: JobSpec) -> None:
    """Its loss was accepted; the positions remain, and the batches begin again."""
    driver = driver_of(spec)
    decide(driver, 0, 0, 10)
    decide(driver, 1, 10, 15)
    decide(driver, 0, 15, 20)
    assert stored(files)[-1] == ("2", "decision 0", 20)
    assert batches(driver_of(spec)) == [0, 0]


def test_files_without_an_entry_halt(files: Files, spec: JobSpec) -> None:
    decide(driver_of(spec), 0, 0, 10)
    for entry in Path(files.path, "_ackwright", "state").iterdir():
        entry.unlink()
    with pytest.raises(JobError, match="batches") as caught:
        driver_of(spec)
    assert caught.value.reason is Reason.POSITION_LOST


def test_a_file_of_another_program_is_no_decision(files: Files, spec: JobSpec) -> None:
    decide(driver_of(spec), 0, 0, 10)
    Path(files.path, "batches", f"{1:020}.parquet").write_bytes(b"no Parquet")
    with pytest.raises(JobError, match="is no file of Parquet") as caught:
        driver_of(spec)
    assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_positions_that_are_set_by_hand_halt(files: Files, spec: JobSpec) -> None:
    """Positions alone, without the state behind them, are of no batch."""
    decide(driver_of(spec), 0, 0, 10)
    entries = sorted(Path(files.path, "_ackwright", "state").iterdir())
    entry = json.loads(entries[-1].read_text())
    entry["lanes"][0]["position"] |= {"offset": 5, "driver": 0}
    copy = entries[-1].with_name(f"{int(entries[-1].stem) + 1:020}.json")
    copy.write_text(json.dumps(entry))
    with pytest.raises(JobError, match="set by hand") as caught:
        driver_of(spec)
    assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_the_recorded_end_of_an_idle_pipeline_is_that_of_its_last_batch(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running driver records it, so that its files can be removed: also behind a batch that moved no lane."""
    driver = driver_of(spec)
    decide(driver, 0, 0, 10)
    decide(driver, 1, 10, 10, ())
    monkeypatch.setattr(sink_module, "_MEMBER_FOR_S", -1.0)
    monkeypatch.setattr(sink_module, "_RECORDED_EVERY_S", -1.0)
    assert driver.sink.is_member()
    for name in files.names():
        Path(files.path, name).unlink()
    following = driver_of(spec)
    assert (last(following), batches(following)) == ("decision 1", [1, 1])
