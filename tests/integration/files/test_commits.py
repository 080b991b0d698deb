"""Files as rows and positions, in a real directory: zombies and other boundaries.

The reader shares no code with the sink. In the controls a file's name has its end, or a file is replaced: what the
tests call exactly-once must then not be so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Lanes, Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.files import layout
from ackwright_stream.sinks.files.sink import FilesStore, FilesTransaction
from ackwright_stream.sinks.files.storage import Directory, Draft
from integration.support.files_stores import ID, A, B, Driver, Files, conflict, directory, job, overtaken, rows


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
        lambda: older.lanes.advance_all([Range(A, 0, 10)]),
        lambda: older.lanes.settle({A: 10}, [], None, ()),
        lambda: older.lanes.stop({A: 10}),
    ):
        conflict(refused, "another driver has joined")
    assert (files.names(), files.settled()) == ([], 0)


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
            others[0].lanes.advance_all([Range(A, 0, offset)])
        assert not Path(files.path, path).exists()
        return create(self, path, draft)

    monkeypatch.setattr(Directory, "create", sleeps)
    membership = FilesStore(spec).join([A])
    assert int(membership) == int(others[0].membership) + 1
    conflict(lambda: others[0].lanes.advance_all([Range(A, 0, 60)]), "another driver has joined")


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
