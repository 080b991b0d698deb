"""Positions and rows in a real Delta table: fencing, zombies, unknown outcomes, late requests.

The reader shares no code with the sink. The controls switch the comparisons off: what the tests call exactly-once must
then not be so.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.delta.log import TableLog
from ackwright_stream.sinks.delta.sink import DeltaStore
from integration.support.delta_stores import Table, job
from integration.support.staged_drivers import A, B, Driver, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def test_rows_and_positions_of_a_batch_are_one_version(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec, [A, B])
    before = table.version
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert table.version == before + 1
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    assert (table.offsets(A), table.offsets(B)) == (list(range(250)), list(range(10)))
    assert (table.position(spec.group, A), table.position(spec.group, B)) == (250, 10)
    assert driver.sink.records().lanes == dict.fromkeys((A, B), driver.lanes.topic_ids["in"])


def test_a_range_without_rows_moves_its_position(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    assert driver.commit([Range(A, 0, 7)], driver.stage([])) == (Outcome.DONE, 0)
    assert (table.offsets(), table.position(spec.group)) == ([], 7)


def test_a_driver_that_was_overtaken_is_refused(table: Table, tmp_path: Path) -> None:
    """Also one that has moved nothing since, which no position tells."""
    spec = job(tmp_path, table.path)
    older = Driver(spec)
    staged = older.stage(rows(A, 0, 10))
    newer = DeltaStore(spec)
    assert newer.join([A]) != older.membership
    version = table.version
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
    assert (table.version, table.offsets(), table.position(spec.group)) == (version, [], 0)


def test_a_driver_that_returns_after_a_pause_commits_nothing(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
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
    spec = job(tmp_path, table.path)
    Driver(spec)
    one, other = DeltaStore(spec), DeltaStore(spec)
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


def test_commits_of_other_programs_delay_a_commit_and_change_nothing(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    _commit_elsewhere(table)
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)
    _commit_elsewhere(table)
    driver.lanes.advance_all([Range(A, 0, 9)])
    _commit_elsewhere(table)
    driver.lanes.stop({A: 9})
    assert table.position(spec.group) == 9
    assert [row["n"] for row in table.rows()].count(-1) == 3


def test_two_pipelines_write_to_one_table(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    other_spec = job(tmp_path, table.path, "other")
    driver, other = Driver(spec), Driver(other_spec, [B])
    for n in range(3):
        assert driver.deliver(Range(A, 10 * n, 10 * n + 10)) == (Outcome.DONE, 10)
        assert other.deliver(Range(B, n, n + 1)) == (Outcome.DONE, 1)
    assert (table.position(spec.group, A), table.position(spec.group, B)) == (30, None)
    assert (table.position(other_spec.group, A), table.position(other_spec.group, B)) == (None, 3)
    assert (table.offsets(A), table.offsets(B)) == (list(range(30)), list(range(3)))


def test_a_table_is_compacted_and_vacuumed_while_the_pipeline_runs(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.stage(rows(A, 0, 10))  # of a task that died
    for n in range(3):
        driver.deliver(Range(A, 10 * n, 10 * n + 10))
    assert len(table.orphans()) == 1
    handle = DeltaTable(str(table.path))
    handle.optimize.compact()
    handle.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    assert len(list(table.path.glob("*.parquet"))) == len(table.files()) == 1, "the orphan is gone, too"
    assert driver.deliver(Range(A, 30, 40)) == (Outcome.DONE, 10)
    assert (table.offsets(), table.position(spec.group)) == (list(range(40)), 40)


def _commit_elsewhere(table: Table) -> None:
    """Another program appends a row."""
    row = pa.table({"lane": pa.array([99], pa.int32()), "n": pa.array([-1], pa.int64())})
    write_deltalake(str(table.path), row, mode="append")


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_the_log_tells(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The answer is lost; the request arrives, or it does not."""
    spec = job(tmp_path, table.path)
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
    spec = job(tmp_path, table.path)
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
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    assert driver.lanes.advance(0, [Range(A, 0, 10)]) == (Outcome.DONE, 0)
    staged = driver.stage(rows(A, 0, 10))
    unanswered(lambda: driver.sink.publish(staged, driver.membership), monkeypatch, arrives=arrives)
    following = Driver(spec)
    assert following.sink.read([A])[A].offset == 10
    assert following.lanes.advance(0, [Range(A, 0, 10)]) == (Outcome.SKIPPED, 0)
    assert table.offsets() == (list(range(10)) if arrives else [])


@pytest.mark.parametrize("is_marked", [True, False])
def test_rows_are_published_once_although_the_client_repeats_the_request(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_marked: bool
) -> None:
    """A compaction has removed the file since, so the table takes it again. Without the mark the rows are there twice.

    A client of S3 repeats a request whose answer was lost, and the server refuses it.
    """
    monkeypatch.setattr(DeltaStore, "marks_rows", is_marked)
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.sink.publish(driver.stage(rows(A, 0, 5)), driver.membership)
    staged = driver.stage(rows(A, 5, 10))
    append = TableLog.append

    def twice(log: TableLog, version: Any, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        server = TableLog(log._sink)
        latest = server.read()
        assert latest is not None
        assert server.append(latest, *arguments)
        DeltaTable(str(table.path)).optimize.compact()
        assert not append(log, version, *arguments)
        return False

    monkeypatch.setattr(TableLog, "append", twice)
    driver.sink.publish(staged, driver.membership)
    assert table.offsets() == (list(range(10)) if is_marked else sorted([*range(10), *range(5, 10)]))
    driver.sink.publish(driver.stage(rows(A, 10, 15)), driver.membership)
    assert table.offsets()[-5:] == list(range(10, 15))


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


def test_a_driver_may_commit_more_often_than_python_can_recurse(table: Table, tmp_path: Path) -> None:
    """What a driver knows of the log from its own commits is not nested."""
    driver = Driver(job(tmp_path, table.path))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack()) + 60)  # as if it had committed a thousand times already
    try:
        for n in range(50):
            assert driver.lanes.advance(0, [Range(A, n, n + 1)])[0] is Outcome.DONE
    finally:
        sys.setrecursionlimit(limit)
    assert table.position(driver.lanes.job.group) == 50


def delayed_append(driver: Driver, staged: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Commits ten rows with a request whose answer is lost. Returns a function that lets the request arrive."""
    append = TableLog.append
    requests: list[Callable[[], bool]] = []

    def delayed(log: TableLog, *arguments: Any) -> bool:
        requests.append(lambda: append(log, *arguments))
        raise JobError(Reason.SINK_UNREACHABLE, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(TableLog, "append", delayed)
        with pytest.raises(JobError, match="no answer"):
            driver.commit([Range(A, 0, 10)], staged)
    return requests[0]


def test_a_request_that_arrives_late_finds_its_version_taken(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    late = delayed_append(driver, staged, monkeypatch)
    restarted = Driver(spec)
    assert late() is False
    assert restarted.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


def test_a_request_that_arrives_between_the_decision_and_the_next_commit_is_a_conflict(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    late = delayed_append(driver, staged, monkeypatch)
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        assert late()
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    with pytest.raises(JobError, match="positions have moved since they were read"):
        driver.commit([Range(A, 0, 10)], staged)
    assert (table.offsets(), table.position(spec.group)) == (list(range(10)), 10)


def test_a_task_that_runs_again_adds_its_rows_once(table: Table, tmp_path: Path) -> None:
    """The driver commits the files of the attempt that answered."""
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.stage(rows(A, 0, 10))  # its answer does not reach the driver
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert (table.offsets(), len(table.orphans())) == (list(range(10)), 1)


def test_an_error_of_the_rows_leaves_no_file(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table.path))

    def broken() -> Iterator[Any]:
        yield from rows(A, 0, 10)
        raise JobError(Reason.MALFORMED_RECORD, "the last one")

    with pytest.raises(JobError, match="the last one"):
        driver.stage(broken())
    assert list(table.path.glob("*.parquet")) == []


def test_positions_that_are_set_by_hand_are_noticed(table: Table, tmp_path: Path) -> None:
    """By the statement of docs/delta.md, while the driver runs."""
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 10))
    handle = DeltaTable(str(table.path))
    name = f"ackwright/{spec.group}/in/0/{driver.lanes.topic_ids['in']}"
    numbers = [Transaction(name, 4), Transaction(f"ackwright/{spec.group}/driver", 0)]
    write_deltalake(
        handle,
        pa.schema(handle.schema()).empty_table(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=numbers),
    )
    with pytest.raises(JobError, match="positions have moved"):
        driver.deliver(Range(A, 10, 20))
    with pytest.raises(JobError) as caught:
        driver.deliver(Range(A, 10, 20))
    assert caught.value.reason is Reason.POSITIONS_MOVED
    position = DeltaStore(spec).peek([A])[A]
    assert position is not None
    assert (position.offset, position.is_foreign) == (4, True)


def test_positions_that_are_gone_are_noticed_by_a_driver_that_had_some(table: Table, tmp_path: Path) -> None:
    driver = Driver(job(tmp_path, table.path))
    for entry in (table.path / "_delta_log").iterdir():
        if entry.name != f"{0:020}.json":
            entry.unlink()
    with pytest.raises(JobError, match="are no longer in the Delta table") as caught:
        driver.sink.join([A])
    assert caught.value.reason is Reason.POSITION_LOST


def test_positions_outlive_checkpoints_and_the_cleanup_of_the_log(table: Table, tmp_path: Path) -> None:
    spec = job(tmp_path, table.path, commit={"timeout.ms": "60000", "checkpoint.interval": "5"})
    driver = Driver(spec, [A, B])
    for n in range(12):
        driver.deliver(Range(A, n, n + 1))
    names = [p.name for p in (table.path / "_delta_log").iterdir()]
    checkpoints = sorted(name for name in names if name.endswith(".checkpoint.parquet"))
    assert len(checkpoints) >= 2
    last = int(checkpoints[-1].split(".")[0])
    for version in range(last):  # as they are when they have expired
        (table.path / "_delta_log" / f"{version:020}.json").unlink()
    DeltaTable(str(table.path))
    again = Driver(spec, [A, B])
    positions = again.sink.read([A, B])
    assert [p and p.offset for p in positions.values()] == [12, 0]
    assert again.lanes.driver == driver.lanes.driver + 1
    assert again.deliver(Range(A, 12, 13)) == (Outcome.DONE, 1)


def test_control_without_the_comparison_a_zombie_commits_as_well(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaStore, "compares", False)
    spec = job(tmp_path, table.path)
    zombie = Driver(spec)
    staged = zombie.stage(rows(A, 0, 5))
    Driver(spec).deliver(Range(A, 0, 10))
    assert zombie.commit([Range(A, 0, 5)], staged) == (Outcome.DONE, 5)
    assert table.offsets() != list(range(10))
    assert table.position(spec.group) == 5


def test_control_without_the_comparison_a_late_request_is_committed_twice(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DeltaStore, "compares", False)
    spec = job(tmp_path, table.path)
    driver = Driver(spec)
    late = delayed_append(driver, driver.stage(rows(A, 0, 10)), monkeypatch)
    append = TableLog.append

    def overtaken(log: TableLog, *arguments: Any) -> bool:
        monkeypatch.setattr(TableLog, "append", append)
        assert late()
        return append(log, *arguments)

    monkeypatch.setattr(TableLog, "append", overtaken)
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    assert table.offsets() == sorted([*range(10), *range(10)])
