"""Files as rows and positions, in a real directory: zombies, other boundaries, unknown outcomes, late requests.

The reader shares no code with the sink. In the controls a file's name has its end, or a file is replaced: what the
tests call exactly-once must then not be so.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files import sink as sink_module
from ackwright_stream.sinks.files.sink import FilesStore, FilesTransaction
from ackwright_stream.sinks.files.storage import Directory, Draft
from integration.support.files_stores import ID, A, B, Driver, Files, directory, job, rows


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "files")


def conflict(call: Callable[[], Any], words: str = "was created since") -> None:
    with pytest.raises(JobError, match=words) as caught:
        call()
    assert caught.value.reason is Reason.POSITION_CONFLICT


def test_a_file_has_the_rows_of_its_range_and_is_the_position(files: Files, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, files.path), [A, B])
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    assert (files.offsets(A), files.offsets(B)) == (list(range(250)), list(range(10)))
    assert (files.chain(A), files.chain(B)) == ([(0, 250)], [(0, 10)])
    footer = files.footer(f"{directory()}/{0:020}.parquet")
    assert footer.pop("id")
    assert footer == {
        "topic": "in",
        "partition": "0",
        "topicId": ID,
        "from": "0",
        "until": "250",
        "driver": "1",
        "pipeline": driver.lanes.job.identity,
        "rows": "250",
    }
    assert files.temporary() == []


def test_a_range_without_rows_is_a_file_with_the_columns(files: Files, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, files.path))
    assert driver.task().advance(0, [Range(A, 0, 7)]) == (Outcome.DONE, 0)
    assert (files.chain(), files.rows()) == ([(0, 7)], [])
    assert driver.deliver(Range(A, 7, 9)) == (Outcome.DONE, 2)
    assert files.offsets() == [7, 8]


def test_the_next_driver_continues_where_the_last_file_ends(files: Files, tmp_path: Path) -> None:
    """Also behind more files than it reads one by one."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    for n in range(11):
        driver.deliver(Range(A, 10 * n, 10 * n + 10))
    for n in range(3):  # the oldest files are not needed any more
        Path(files.path, directory(), f"{10 * n:020}.parquet").unlink()
    newer = Driver(spec)
    assert files.settled() == 110
    assert newer.lanes.driver == driver.lanes.driver + 1
    assert newer.deliver(Range(A, 110, 120)) == (Outcome.DONE, 10)
    assert files.offsets() == list(range(30, 120))


def test_a_driver_that_was_overtaken_is_refused(files: Files, tmp_path: Path) -> None:
    """Also one that has moved nothing since, which no position tells."""
    spec = job(tmp_path, files.path)
    older = Driver(spec)
    assert FilesStore(spec).join([A]) != older.membership
    for refused in (
        lambda: older.deliver(Range(A, 0, 10)),
        lambda: older.lanes.advance_all({A: 10}),
        lambda: older.lanes.settle({A: 10}, [], None, ()),
        lambda: older.lanes.stop({A: 10}),
    ):
        conflict(refused, "another driver has joined")
    assert (files.names(), files.settled()) == ([], 0)


def overtaken(task: Lanes, batch: Range, meanwhile: Callable[[], Any]) -> tuple[Outcome, int]:
    """A task in which something happens between its decision and the creation of its file."""

    def late_rows() -> Iterator[Any]:
        yield from rows(batch.lane, batch.start, batch.until)
        meanwhile()

    return task.advance(0, [batch], late_rows())


@pytest.mark.parametrize("until", [5, 12, 30])
def test_a_zombie_whose_ranges_have_other_ends_writes_nothing_twice(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: int
) -> None:
    """Its generation is compared before its file is created; that it is compared in time cannot be relied on."""
    monkeypatch.setattr(FilesStore, "compares", False)
    spec = job(tmp_path, files.path)
    zombie = Driver(spec)
    zombie.deliver(Range(A, 0, 5))
    drivers: list[Driver] = []

    def successor() -> None:
        drivers.append(Driver(spec))
        assert drivers[0].deliver(Range(A, 5, 12)) == (Outcome.DONE, 7)

    conflict(lambda: overtaken(zombie.task(), Range(A, 5, 5 + until), successor))
    assert drivers[0].deliver(Range(A, 12, 20)) == (Outcome.DONE, 8)
    assert (files.offsets(), files.position()) == (list(range(20)), 20)


def test_a_zombie_that_is_faster_wins_and_its_successor_continues_behind_it(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilesStore, "compares", False)
    spec = job(tmp_path, files.path)
    zombie, newer = Driver(spec), Driver(spec)
    task = newer.task()
    conflict(lambda: overtaken(task, Range(A, 0, 4), lambda: zombie_wins(zombie, spec)))
    conflict(lambda: task.advance(0, [Range(A, 0, 4)]), "committed by driver 1")
    successor = Driver(spec)
    assert successor.deliver(Range(A, 9, 12)) == (Outcome.DONE, 3)
    assert (files.offsets(), files.chain()) == (list(range(12)), [(0, 9), (9, 12)])


def zombie_wins(zombie: Driver, spec: Any) -> None:
    """It decided before it was replaced, when its number was the highest."""
    path, position = layout.file(A, ID, 0), zombie.lanes._position(A, 9)
    store = FilesStore(spec)
    read = {A: zombie.lanes._position(A, 0)}
    numbered = list(rows(A, 0, 9))
    opened = FilesTransaction(store, store._storage(), read, zombie.membership)
    assert opened.commit({A: position}, numbered) == 9
    assert Path(store.sink.path, path).exists()


def test_a_zombie_is_stopped_before_it_creates_a_file(files: Files, tmp_path: Path) -> None:
    spec = job(tmp_path, files.path)
    zombie = Driver(spec)
    newer: list[Driver] = []
    conflict(
        lambda: overtaken(zombie.task(), Range(A, 0, 5), lambda: newer.append(Driver(spec))),
        "another driver has joined",
    )
    assert (files.names(), files.temporary()) == ([], [])
    assert newer[0].deliver(Range(A, 0, 9)) == (Outcome.DONE, 9)


def test_two_drivers_that_join_at_once_get_different_generations(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, files.path)
    Driver(spec)
    one, other = FilesStore(spec), FilesStore(spec)
    create = Directory.create
    joined: list[bytes] = []

    def slow(self: Directory, path: str, draft: Draft) -> bool:
        monkeypatch.setattr(Directory, "create", create)
        joined.append(other.join([A]))  # it has read the same entry
        return create(self, path, draft)

    monkeypatch.setattr(Directory, "create", slow)
    joined.append(one.join([A]))
    assert len(set(joined)) == 2
    assert int(joined[1]) == int(joined[0]) + 1


def test_a_driver_that_sleeps_while_it_joins_gets_no_generation_of_another_one(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry that it wants to create was another driver's, and is removed when it wakes up."""
    spec = job(tmp_path, files.path)
    Driver(spec)
    create = Directory.create
    others: list[Driver] = []

    def sleeps(self: Directory, path: str, draft: Draft) -> bool:
        monkeypatch.setattr(Directory, "create", create)
        others.append(Driver(spec))
        for offset in range(1, 60):
            others[0].lanes.advance_all({A: offset})
        assert not Path(files.path, path).exists()
        return create(self, path, draft)

    monkeypatch.setattr(Directory, "create", sleeps)
    membership = FilesStore(spec).join([A])
    assert int(membership) == int(others[0].membership) + 1
    conflict(lambda: others[0].lanes.advance_all({A: 60}), "another driver has joined")


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_the_file_tells(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The answer is lost; the file is there, or it is not. Spark runs the task again."""
    driver = Driver(job(tmp_path, files.path))
    create = Directory.create

    def unanswered(self: Directory, path: str, draft: Draft) -> bool:
        if arrives:
            create(self, path, draft)
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    monkeypatch.setattr(Directory, "create", unanswered)
    with pytest.raises(JobError, match="no answer"):
        driver.deliver(Range(A, 0, 10))
    monkeypatch.setattr(Directory, "create", create)
    outcome = driver.deliver(Range(A, 0, 10))
    assert outcome == ((Outcome.SKIPPED, 0) if arrives else (Outcome.DONE, 10))
    assert (files.offsets(), files.position()) == (list(range(10)), 10)


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_of_the_advance_no_row_is_lost_at_least_once(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The rows are there. The next driver repeats them unless the positions have moved."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    driver.task().sink.write([A], rows(A, 0, 10))
    unanswered(lambda: driver.lanes.advance_all({A: 10}), monkeypatch, arrives=arrives)
    following = Driver(spec)
    position = following.sink.read([A])[A]
    assert position is not None
    start = position.offset
    assert start == (10 if arrives else 0)
    following.task().sink.write([A], rows(A, start, 20))
    following.lanes.advance_all({A: 20})
    assert files.offsets() == sorted([*range(10), *range(start, 20)])


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_of_the_rows_none_is_repeated_at_most_once(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The position has moved. The next driver continues behind it."""
    spec = job(tmp_path, files.path)
    task = Driver(spec).task()
    assert task.advance(0, [Range(A, 0, 10)]) == (Outcome.DONE, 0)
    unanswered(lambda: task.sink.write([A], rows(A, 0, 10)), monkeypatch, arrives=arrives)
    assert Driver(spec).task().advance(0, [Range(A, 0, 10)]) == (Outcome.SKIPPED, 0)
    assert files.offsets() == (list(range(10)) if arrives else [])


def unanswered(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> None:
    """Makes the call, which fails: its request gets no answer, whether it arrives or not."""
    create = Directory.create

    def without_answer(self: Directory, path: str, draft: Draft) -> bool:
        if arrives:
            create(self, path, draft)
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(Directory, "create", without_answer)
        with pytest.raises(JobError, match="no answer"):
            call()


def test_a_file_that_comes_late_meets_that_of_the_next_attempt(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(job(tmp_path, files.path))
    late = lose_next_file(monkeypatch)
    with pytest.raises(JobError, match="no answer"):
        driver.deliver(Range(A, 0, 10))
    assert driver.deliver(Range(A, 0, 4)) == (Outcome.DONE, 4), "another query has other boundaries"
    assert late() is False
    assert driver.deliver(Range(A, 4, 10)) == (Outcome.DONE, 6)
    assert (files.offsets(), files.chain()) == (list(range(10)), [(0, 4), (4, 10)])


def test_a_file_that_comes_late_but_first_is_a_conflict_for_the_next_attempt(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, files.path)
    driver = Driver(spec)
    late = lose_next_file(monkeypatch)
    with pytest.raises(JobError, match="no answer"):
        driver.deliver(Range(A, 0, 10))
    conflict(lambda: overtaken(driver.task(), Range(A, 0, 4), late))
    assert Driver(spec).deliver(Range(A, 10, 12)) == (Outcome.DONE, 2)
    assert (files.offsets(), files.chain()) == (list(range(12)), [(0, 10), (10, 12)])


def lose_next_file(monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """The next file is not created, and its task gets no answer. Calling the result creates it after all."""
    create, discard = Directory.create, Directory.discard
    late: list[Callable[[], bool]] = []

    def lost(self: Directory, path: str, draft: Draft) -> bool:
        monkeypatch.setattr(Directory, "create", create)
        late.append(lambda: create(self, path, draft))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    def not_yet(self: Directory, draft: Draft) -> None:
        if late:
            monkeypatch.setattr(Directory, "discard", discard)

    monkeypatch.setattr(Directory, "create", lost)
    monkeypatch.setattr(Directory, "discard", not_yet)
    return lambda: late.pop()()  # noqa: PLW0108 (it is not there yet)


def test_a_task_that_dies_between_the_files_of_two_lanes(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each lane is right by itself; the driver restarts from the positions."""
    spec = job(tmp_path, files.path)
    driver = Driver(spec, [A, B])
    ranges = (Range(A, 0, 10), Range(B, 0, 10))
    create = Directory.create

    def dies(self: Directory, path: str, draft: Draft) -> bool:
        if path.startswith("in-1"):
            raise JobError(Reason.SINK_UNREACHABLE, "no answer")
        return create(self, path, draft)

    monkeypatch.setattr(Directory, "create", dies)
    with pytest.raises(JobError, match="no answer"):
        driver.deliver(*ranges)
    monkeypatch.setattr(Directory, "create", create)
    conflict(lambda: driver.deliver(*ranges), "some lanes of a task are at the start")
    newer = Driver(spec, [A, B])
    assert newer.deliver(Range(B, 0, 12)) == (Outcome.DONE, 12)
    assert (files.chain(A), files.chain(B)) == ([(0, 10)], [(0, 12)])


def test_an_error_of_the_rows_leaves_no_file(files: Files, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, files.path))

    def broken() -> Iterator[Any]:
        yield from rows(A, 0, 10)
        raise JobError(Reason.MALFORMED_RECORD, "the last one")

    with pytest.raises(JobError, match="the last one"):
        driver.task().advance(0, [Range(A, 0, 10)], broken())
    assert (files.names(), files.temporary()) == ([], [])


def test_a_recreated_topic_has_another_directory(files: Files, tmp_path: Path) -> None:
    """Its offsets begin again. The old topic's driver may be alive."""
    spec = job(tmp_path, files.path)
    old = Driver(spec)
    old.deliver(Range(A, 0, 10))
    sink = FilesStore(spec)
    membership = sink.join([A])
    lanes = Lanes(spec, sink, membership, 2, {"in": "another-id"})
    with pytest.raises(JobError) as caught:
        lanes.current(A, sink.read([A])[A])
    assert caught.value.reason is Reason.TOPIC_REPLACED
    lanes.settle({A: 0}, [A], {}, {"in"})
    assert lanes.advance(0, [Range(A, 0, 3)], rows(A, 0, 3)) == (Outcome.DONE, 3)
    conflict(lambda: old.deliver(Range(A, 10, 20)), "another driver has joined")
    assert (files.chain(A), files.chain(A, "another-id")) == ([(0, 10)], [(0, 3)])
    assert files.offsets() == sorted([*range(10), *range(3)])


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
    driver.sink.write([A], rows(A, 10, 20))
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
        driver.lanes.advance_all({A: offset})
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


def test_another_pipeline_may_not_write_to_the_directory(files: Files, tmp_path: Path) -> None:
    Driver(job(tmp_path, files.path))
    other = FilesStore(job(tmp_path, files.path, "other"))
    for refused in (other.check, lambda: other.join([A])):
        with pytest.raises(JobError, match=r"belongs to the pipeline with the group .*\.p;") as caught:
            refused()
        assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_control_with_the_end_in_the_name_other_boundaries_duplicate(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilesStore, "compares", False)
    create = Directory.create

    def named_by_range(self: Directory, path: str, draft: Draft) -> bool:
        if path.startswith("in-"):
            draft.file.flush()
            end = (pq.read_metadata(draft.place).metadata or {})[b"ackwright.until"].decode()
            path = path.replace(".parquet", f"-{end}.parquet")
        return create(self, path, draft)

    spec = job(tmp_path, files.path)
    zombie = Driver(spec)
    monkeypatch.setattr(Directory, "create", named_by_range)
    assert overtaken(zombie.task(), Range(A, 0, 9), lambda: Driver(spec).deliver(Range(A, 0, 5))) == (Outcome.DONE, 9)
    assert files.offsets() == sorted([*range(5), *range(9)])


def test_control_a_file_that_replaces_another_one_loses_or_duplicates(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilesStore, "compares", False)
    link = os.link

    def replace(source: Any, target: Any) -> None:
        Path(target).unlink(missing_ok=True)
        link(source, target)

    monkeypatch.setattr(os, "link", replace)
    spec = job(tmp_path, files.path)
    zombie = Driver(spec)

    def successor() -> None:
        driver = Driver(spec)
        driver.deliver(Range(A, 0, 9))
        driver.deliver(Range(A, 9, 12))

    assert overtaken(zombie.task(), Range(A, 0, 5), successor) == (Outcome.DONE, 5)
    assert files.offsets() == [*range(5), *range(9, 12)]
