"""Positions and rows in a real Iceberg table, in both kinds of catalogs: fencing, zombies, unknown outcomes.

The reader shares no code with the sink. The controls switch the comparisons off: what the tests call exactly-once must
then not be so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyiceberg.table import Table as IcebergTable
from pyiceberg.table.update import SetSnapshotRefUpdate

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import IcebergSink, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg.log import TableLog
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from ackwright_stream.sinks.staged.positions import Names
from integration.support.iceberg_stores import Table, add_elsewhere, job
from integration.support.staged_drivers import IDS, A, B, Driver, rows

RACERS, JOINS, ROUNDS = 4, 4, 4


def test_rows_and_positions_of_a_batch_are_one_snapshot(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec, [A, B])
    before = table.snapshots
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert table.snapshots == before + 1
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    assert (table.offsets(A), table.offsets(B)) == (list(range(250)), list(range(10)))
    assert (table.position(spec.group, A), table.position(spec.group, B)) == (250, 10)
    assert driver.sink.records().lanes == dict.fromkeys((A, B), driver.lanes.topic_ids["in"])


def test_a_range_without_rows_moves_its_position(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    assert driver.commit([Range(A, 0, 7)], driver.stage([])) == (Outcome.DONE, 0)
    assert (table.offsets(), table.position(spec.group)) == ([], 7)


def test_a_driver_that_was_overtaken_is_refused(table: Table, tmp_path: Path) -> None:
    """Also one that has moved nothing since, which no position tells."""
    spec = job(tmp_path, table)
    older = Driver(spec)
    staged = older.stage(rows(A, 0, 10))
    newer = IcebergStore(spec)
    assert newer.join([A]) != older.membership
    version = table.snapshots
    for refused in (
        lambda: older.commit([Range(A, 0, 10)], staged),
        lambda: older.sink.publish(staged, older.membership),
        lambda: older.lanes.advance(0, [Range(A, 0, 10)]),
        lambda: older.lanes.advance_all([Range(A, 0, 10)]),
        lambda: older.lanes.settle({A: 10}, [], None, ()),
        lambda: older.lanes.stop({A: 10}),
    ):
        with pytest.raises(JobError, match="another driver has joined") as caught:
            refused()
        assert caught.value.reason is Reason.POSITION_CONFLICT
    assert (table.snapshots, table.offsets(), table.position(spec.group)) == (version, [], 0)


def test_a_driver_that_returns_after_a_pause_commits_nothing(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    zombie = Driver(spec)
    zombie.deliver(Range(A, 0, 5))
    staged = zombie.stage(rows(A, 5, 20))
    newer = Driver(spec)
    assert newer.deliver(Range(A, 5, 12)) == (Outcome.DONE, 7)
    with pytest.raises(JobError, match="another driver has joined"):
        zombie.commit([Range(A, 5, 20)], staged)
    assert newer.deliver(Range(A, 12, 20)) == (Outcome.DONE, 8)
    assert (table.offsets(), table.position(spec.group)) == (list(range(20)), 20)
    assert len(table.orphans()) == 1


def test_two_drivers_that_join_at_once_get_different_generations(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table)
    Driver(spec)
    one, other = IcebergStore(spec), IcebergStore(spec)
    append = TableLog.append
    joined: list[bytes] = []

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        joined.append(other.join([A]))  # it has read the same version
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    joined.append(one.join([A]))
    assert len(set(joined)) == 2
    assert int(joined[1]) == int(joined[0]) + 1


def test_a_driver_that_is_overtaken_between_its_read_and_its_commit_is_refused(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control below is the same without the comparison."""
    spec = job(tmp_path, table)
    zombie = Driver(spec)
    staged = zombie.stage(rows(A, 0, 5))
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        Driver(spec).deliver(Range(A, 0, 10))
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    with pytest.raises(JobError, match="another driver has joined"):
        zombie.commit([Range(A, 0, 5)], staged)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


def test_drivers_that_race_get_different_generations(table: Table, tmp_path: Path) -> None:
    """Every commit makes a snapshot, so no two of them can follow the same one."""
    spec = replace(job(tmp_path, table), operation_timeout_ms=240_000)  # each loses many races before it joins
    Driver(spec)
    drivers = [IcebergStore(spec) for _ in range(RACERS)]
    start = Barrier(RACERS)

    def join(driver: IcebergStore) -> list[int]:
        start.wait()
        return [int(driver.join([A])) for _ in range(JOINS)]

    with ThreadPoolExecutor(RACERS) as pool:
        generations = [n for joined in pool.map(join, drivers) for n in joined]
    assert sorted(generations) == list(range(2, 2 + RACERS * JOINS))


def test_of_commits_that_race_one_is_in_the_table(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    for n in range(ROUNDS):
        logs = [TableLog(spec.sink_of(IcebergSink), Names(spec.group).snapshot) for _ in range(RACERS)]
        staged = [driver.sink.staged(driver.stage(rows(A, n, n + 1)).of_tasks) for _ in logs]
        versions = [log.read() for log in logs]
        start = Barrier(RACERS)

        def commit(log: TableLog, version: Any, files: Any, racer: int, start: Barrier = start) -> bool:
            start.wait()
            return log.append(version, {"racer": racer}, files)

        with ThreadPoolExecutor(RACERS) as pool:
            outcomes = list(pool.map(commit, logs, versions, staged, range(RACERS)))
        assert sorted(outcomes) == [*[False] * (RACERS - 1), True]
        assert table.properties()["racer"] == str(outcomes.index(True))
        assert table.offsets() == list(range(n + 1))


def test_commits_of_other_programs_delay_a_commit_and_change_nothing(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    add_elsewhere(table.handle())
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)
    add_elsewhere(table.handle())
    driver.lanes.advance_all([Range(A, 0, 9)])
    add_elsewhere(table.handle())
    driver.lanes.stop({A: 9})
    assert table.position(spec.group) == 9
    assert [row["n"] for row in table.rows()].count(-1) == 3


def test_two_pipelines_write_to_one_table(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    other_spec = job(tmp_path, table, "other")
    driver, other = Driver(spec), Driver(other_spec, [B])
    for n in range(3):
        assert driver.deliver(Range(A, 10 * n, 10 * n + 10)) == (Outcome.DONE, 10)
        assert other.deliver(Range(B, n, n + 1)) == (Outcome.DONE, 1)
    assert (table.position(spec.group, A), table.position(spec.group, B)) == (30, None)
    assert (table.position(other_spec.group, A), table.position(other_spec.group, B)) == (None, 3)
    assert (table.offsets(A), table.offsets(B)) == (list(range(30)), list(range(3)))


def test_a_table_is_rewritten_and_its_snapshots_expire_while_the_pipeline_runs(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.stage(rows(A, 0, 10))  # of a task that died
    for n in range(3):
        driver.deliver(Range(A, 10 * n, 10 * n + 10))
    handle = table.handle()
    handle.overwrite(handle.scan().to_arrow())
    current = table.handle().metadata.current_snapshot_id
    old = [s.snapshot_id for s in table.handle().metadata.snapshots if s.snapshot_id != current]
    table.handle().maintenance.expire_snapshots().by_ids(old).commit()
    assert (table.snapshots, len(table.files())) == (1, 1)
    assert driver.deliver(Range(A, 30, 40)) == (Outcome.DONE, 10)
    assert (table.offsets(), table.position(spec.group)) == (list(range(40)), 40)


def test_a_snapshot_on_another_branch_delays_a_commit(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the sequence number that the commit was to have."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        with table.handle().transaction() as change:
            change.update_snapshot(branch="other").fast_append().commit()
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    assert driver.commit([Range(A, 0, 10)], staged) == (Outcome.DONE, 10)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


RETENTION = {"min-snapshots-to-keep": 500, "max-snapshot-age-ms": 30 * 86_400_000, "max-ref-age-ms": 90 * 86_400_000}


def test_a_commit_leaves_the_retention_of_the_branch_as_it_is(table: Table, tmp_path: Path) -> None:
    """In the catalog of SQLite, pyiceberg computes the new metadata; in the other one the server does."""
    driver = Driver(job(tmp_path, table))
    main = {**table.metadata["refs"]["main"], **RETENTION}
    update = SetSnapshotRefUpdate.model_validate({"ref-name": "main", **main})
    table.handle()._do_commit(updates=(update,), requirements=())
    assert table.metadata["refs"] == {"main": main}
    driver.deliver(Range(A, 0, 10))
    driver.sink.publish(driver.stage(rows(B, 0, 5)), driver.membership)
    after = table.metadata["refs"]["main"]
    assert after.pop("snapshot-id") == table.metadata["current-snapshot-id"] != main.pop("snapshot-id")
    assert after == main


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_the_table_tells(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The answer is lost; the request arrives, or it does not."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    append = TableLog.append

    def unanswered(log: TableLog, *arguments: Any) -> bool:
        if arrives:
            append(log, *arguments)
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    monkeypatch.setattr(TableLog, "append", unanswered)
    with pytest.raises(JobError, match="no answer"):
        driver.commit([Range(A, 0, 10)], staged)
    monkeypatch.setattr(TableLog, "append", append)
    outcome = driver.commit([Range(A, 0, 10)], staged)
    assert outcome == ((Outcome.SKIPPED, 0) if arrives else (Outcome.DONE, 10))
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)
    assert Driver(spec).sink.read([A])[A].offset == 10


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_of_the_advance_no_row_is_lost_at_least_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The rows are in the table. The next driver repeats them unless the positions have moved."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.sink.publish(driver.stage(rows(A, 0, 10)), driver.membership)
    unanswered(lambda: driver.lanes.advance_all([Range(A, 0, 10)]), monkeypatch, arrives=arrives)
    following = Driver(spec)
    start = following.sink.read([A])[A].offset
    assert start == (10 if arrives else 0)
    following.sink.publish(following.stage(rows(A, start, 20)), following.membership)
    following.lanes.advance_all([Range(A, 0, 20)])
    assert table.offsets() == sorted([*range(10), *range(start, 20)])
    assert table.position(spec.group) == 20


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_of_the_rows_none_is_repeated_at_most_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The positions have moved. The next driver continues behind them."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    assert driver.lanes.advance(0, [Range(A, 0, 10)]) == (Outcome.DONE, 0)
    staged = driver.stage(rows(A, 0, 10))
    unanswered(lambda: driver.sink.publish(staged, driver.membership), monkeypatch, arrives=arrives)
    following = Driver(spec)
    assert following.sink.read([A])[A].offset == 10
    assert following.lanes.advance(0, [Range(A, 0, 10)]) == (Outcome.SKIPPED, 0)
    assert table.offsets() == (list(range(10)) if arrives else [])


def unanswered(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, *, arrives: bool) -> None:
    """Makes the call, which fails: its request gets no answer, whether it arrives or not."""
    append = TableLog.append

    def without_answer(log: TableLog, *arguments: Any) -> bool:
        if arrives:
            append(log, *arguments)
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(TableLog, "append", without_answer)
        with pytest.raises(JobError, match="no answer"):
            call()


def test_a_request_that_arrives_late_finds_another_snapshot(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    append = TableLog.append
    late: list[Any] = []

    def lost(log: TableLog, *arguments: Any) -> bool:
        late.append(lambda: append(log, *arguments))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    monkeypatch.setattr(TableLog, "append", lost)
    with pytest.raises(JobError, match="no answer"):
        driver.commit([Range(A, 0, 10)], staged)
    monkeypatch.setattr(TableLog, "append", append)
    restarted = Driver(spec)
    assert late[0]() is False
    assert restarted.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


def test_a_request_that_arrives_between_the_decision_and_the_next_commit_is_a_conflict(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    append = TableLog.append
    late: list[Any] = []

    def lost(log: TableLog, *arguments: Any) -> bool:
        late.append(lambda: append(log, *arguments))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    monkeypatch.setattr(TableLog, "append", lost)
    with pytest.raises(JobError, match="no answer"):
        driver.commit([Range(A, 0, 10)], staged)

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        assert late[0]()
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    with pytest.raises(JobError, match="positions have moved since they were read"):
        driver.commit([Range(A, 0, 10)], staged)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


def test_a_task_that_runs_again_adds_its_rows_once(table: Table, tmp_path: Path) -> None:
    """The driver commits the files of the attempt that answered."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.stage(rows(A, 0, 10))  # its answer does not reach the driver
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert (table.offsets(), len(table.orphans())) == (list(range(10)), 1)


def test_an_error_of_the_rows_leaves_no_file(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table))

    def broken() -> Iterator[Any]:
        yield from rows(A, 0, 10)
        raise JobError(Reason.MALFORMED_RECORD, "the last one")

    with pytest.raises(JobError, match="the last one"):
        driver.stage(broken())
    assert list(table.directory.rglob("*.parquet")) == []


def _set_by_hand(table: Table, group: str, offset: int) -> None:
    """As ALTER TABLE … SET TBLPROPERTIES of docs/iceberg.md does."""
    name = f"ackwright/{group}/in/0/{IDS['in']}"
    with table.handle().transaction() as change:
        change.set_properties({name: str(offset), f"ackwright/{group}/driver": "0"})


def test_positions_that_are_set_by_hand_are_noticed(table: Table, tmp_path: Path) -> None:
    """By the statement of docs/iceberg.md, while the driver runs."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    _set_by_hand(table, spec.group, 4)
    with pytest.raises(JobError) as caught:
        driver.deliver(Range(A, 10, 20))
    assert caught.value.reason is Reason.POSITIONS_MOVED
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 4)
    position = IcebergStore(spec).peek([A])[A]
    assert position is not None
    assert (position.offset, position.is_foreign) == (4, True)


def test_positions_that_are_set_by_hand_during_a_commit_are_noticed_by_the_next(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No requirement of a catalog protects properties, so the commit replaces them. The driver's number stays 0."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        _set_by_hand(table, spec.group, 4)
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    monkeypatch.setattr(TableLog, "append", append)
    with pytest.raises(JobError) as caught:
        driver.deliver(Range(A, 10, 20))
    assert caught.value.reason is Reason.POSITIONS_MOVED
    assert table.offsets() == list(range(10))


def test_positions_that_are_gone_are_noticed_by_a_driver_that_had_some(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table))
    names = [name for name in table.properties() if name.startswith("ackwright/")]
    with table.handle().transaction() as change:
        change.remove_properties(*names)
    with pytest.raises(JobError, match="are no longer in the Iceberg table") as caught:
        driver.sink.join([A])
    assert caught.value.reason is Reason.POSITION_LOST


def test_a_request_that_a_proxy_sends_twice_is_committed_once(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog refuses the second one, and its answer is the one that the driver gets. Also without a position."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    commit = IcebergTable._do_commit

    def twice(handle: IcebergTable, **arguments: Any) -> None:
        commit(copy(handle), **arguments)
        commit(handle, **arguments)

    monkeypatch.setattr(IcebergTable, "_do_commit", twice)
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    driver.sink.publish(driver.stage(rows(B, 0, 10)), driver.membership)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)
    assert table.offsets(B) == list(range(10))


def test_a_request_that_arrives_after_a_rollback_to_its_snapshot_is_refused(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch is where the request requires it; the sequence number is not."""
    spec = job(tmp_path, table)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    before = table.metadata["current-snapshot-id"]
    staged = driver.stage(rows(A, 5, 10))
    append = TableLog.append
    late: list[Any] = []

    def lost(log: TableLog, *arguments: Any) -> bool:
        late.append(lambda: append(log, *arguments))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    monkeypatch.setattr(TableLog, "append", lost)
    with pytest.raises(JobError, match="no answer"):
        driver.commit([Range(A, 5, 10)], staged)
    monkeypatch.setattr(TableLog, "append", append)
    Driver(spec).deliver(Range(A, 5, 10))
    table.roll_back(before)
    assert late[0]() is False
    assert (table.offsets(), table.position(spec.group)) == (list(range(5)), 10)


def test_control_without_the_comparison_a_zombie_commits_as_well(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is overtaken between its read and its commit, which is refused once."""
    monkeypatch.setattr(IcebergStore, "compares", False)
    spec = job(tmp_path, table)
    zombie = Driver(spec)
    staged = zombie.stage(rows(A, 0, 5))
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        Driver(spec).deliver(Range(A, 0, 10))
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    assert zombie.commit([Range(A, 0, 5)], staged) == (Outcome.DONE, 5)
    assert table.offsets() != list(range(10))
    assert table.position(spec.group) == 5


def test_control_without_the_comparison_a_late_request_is_committed_twice(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(IcebergStore, "compares", False)
    spec = job(tmp_path, table)
    driver = Driver(spec)
    append = TableLog.append
    late: list[Any] = []

    def lost(log: TableLog, *arguments: Any) -> bool:
        late.append(lambda: append(log, *arguments))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        assert late[0]()
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", lost)
    with pytest.raises(JobError, match="no answer"):
        driver.deliver(Range(A, 0, 10))
    monkeypatch.setattr(TableLog, "append", overtaken)
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert table.offsets() == sorted([*range(10), *range(10)])
