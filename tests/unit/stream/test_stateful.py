"""A stateful batch: how tasks pass their rows to the driver, and what the driver refuses to commit.

With Spark and brokers: integration/delivery/test_stateful.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from ackwright_stream import delivery
from ackwright_stream.delivery import stateful
from ackwright_stream.delivery.batch import Batch
from ackwright_stream.delivery.stateful import Stateful
from ackwright_stream.encoded_output import decode, files_of
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, KafkaSink, Reason, StateSettings, from_json, to_json
from ackwright_stream.lanes import Lanes
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.base import Membership, Rows, Sink
from ackwright_stream.spark_internals.worker import TaskInput
from ackwright_stream.worker_state import STATE as STATE_OF_WORKER
from minimal_job import minimal_job
from unit.stream.decided import DECISION
from unit.stream.stateful_jobs import SETTINGS, stateful_job

LANE, OTHER = Lane("in", 0), Lane("in", 1)
ROWS = [pa.RecordBatch.from_pydict({"key": [b"a", b"b"]}), pa.RecordBatch.from_pydict({"key": [b"c"]})]


def test_a_stateful_job_goes_there_and_back() -> None:
    job = stateful_job()
    assert from_json(to_json(job)) == job
    assert isinstance(delivery.for_job(job), Stateful)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"guarantee": Guarantee.AT_LEAST_ONCE, "producer": {"acks": "0"}},
            "a batch is decided when its output is acknowledged",
        ),
        ({"stream_options": {"asyncProgressTrackingEnabled": "true"}}, "text of Spark's log"),
        ({"spark": {}}, "spark.speculation is None and must be 'false'"),
        ({"state": replace(SETTINGS, partitions=3)}, "spark.sql.shuffle.partitions is '2' and must be '3'"),
        ({"sink": replace(minimal_job().sink_of(KafkaSink), preserve_partition=True)}, "no source partition"),
    ],
)
def test_settings_that_break_the_protocol_are_refused(changes: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        stateful_job(**changes)


def hashed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as Spark passes them to a task, with two hashes."""
    hashes = pa.array([7] * rows.num_rows, pa.int64())
    return rows.append_column("first", hashes).append_column("second", hashes)


def answered(rows: Rows, settings: StateSettings = SETTINGS) -> pa.Table:
    """What a task answers."""
    STATE_OF_WORKER.input = cast(Any, SimpleNamespace(connection=object(), continues=True))
    try:
        return pa.Table.from_batches(stateful._in_worker(settings, 1, map(hashed, rows)))
    finally:
        STATE_OF_WORKER.input = TaskInput()


def batch_of(*answers: pa.Table) -> Batch:
    """A batch whose tasks answer so."""
    of_tasks = [
        answer.set_column(0, "task", pa.array([task] * len(answer), pa.int32())) for task, answer in enumerate(answers)
    ]
    frame: Any = SimpleNamespace(toArrow=lambda: pa.concat_tables(reversed(of_tasks)))
    return Batch(frame, cast(Any, None), (), number=4)


@pytest.mark.parametrize("batch_bytes", [10_000, 0], ids=["memory", "files"])
def test_the_output_of_all_tasks_is_in_their_order(tmp_path: Path, batch_bytes: int) -> None:
    settings = replace(SETTINGS, checkpoint=str(tmp_path), batch_bytes=batch_bytes)
    answers = [answered(rows, settings) for rows in (ROWS, [ROWS[1]])]
    pieces = Stateful(stateful_job(), settings)._evaluate(batch_of(*answers))
    assert list(decode(pieces, lambda: files_of(settings))) == [*ROWS, ROWS[1]]
    assert [bool(piece.file) for piece in pieces] == [batch_bytes == 0] * 2


def test_each_task_has_its_part_of_the_memory(tmp_path: Path) -> None:
    size = sum(len(piece["rows"]) for piece in answered(ROWS).to_pylist())
    for batch_bytes, in_file in ((2 * size, False), (2 * size - 1, True)):
        settings = replace(SETTINGS, checkpoint=str(tmp_path), batch_bytes=batch_bytes)
        [answer] = answered(ROWS, settings).to_pylist()
        assert (answer["rows"] is None) is (answer["file"] is not None) is in_file


def test_a_task_without_rows_answers() -> None:
    assert Stateful(stateful_job(), SETTINGS)._evaluate(batch_of(answered(()), answered(()))) == []


@pytest.mark.parametrize("answers", [1, 3])
def test_another_number_of_answers_than_of_partitions_is_an_error(answers: int) -> None:
    with pytest.raises(JobError, match=f"{answers} tasks of a batch answered in place of 2"):
        Stateful(stateful_job(), SETTINGS)._evaluate(batch_of(*[answered(ROWS)] * answers))


def test_files_are_removed_before_the_first_batch_and_behind_each_that_has_some(tmp_path: Path) -> None:
    settings = replace(SETTINGS, checkpoint=str(tmp_path))
    left, own, later = (tmp_path / "output" / driver / "file" for driver in ("1", "2", "3"))

    def write() -> None:
        for file in (left, own, later):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()

    def there() -> list[bool]:
        return [file.exists() for file in (left, own, later)]

    subject, none = Stateful(stateful_job(), settings), batch_of(answered(()), answered(()))
    write()
    with pytest.raises(JobError, match="no decision before it"):
        subject.deliver(none, lanes_at(Store({})))
    assert there() == [False, False, True]  # of this driver and those before
    write()
    with pytest.raises(JobError, match="no decision before it"):
        subject.deliver(none, lanes_at(Store({})))
    assert there() == [True, True, True]  # nothing was stored
    with pytest.raises(JobError, match="no decision before it"):
        subject.deliver(batch_of(answered(ROWS, replace(settings, batch_bytes=0)), answered(())), lanes_at(Store({})))
    assert there() == [False, False, True]
    write()
    with pytest.raises(JobError, match="answered in place of"):
        subject.deliver(batch_of(answered(())), lanes_at(Store({})))
    assert there() == [False, False, True]  # a task of it may have stored some


class Store:
    """A sink that takes decisions: positions, and what was committed."""

    def __init__(self, positions: Mapping[Lane, Position | None]) -> None:
        self.positions = positions
        self.committed: list[tuple[Mapping[Lane, Position], list[pa.RecordBatch], str]] = []
        self.with_letters: list[str] = []  # the steps that wrote dead letters
        self.released = 0
        self.decisions = self
        self.writer: Writer | None = None

    def open(self, lanes: Sequence[Lane], membership: Membership) -> Store:
        return self

    def commit(self, positions: Mapping[Lane, Position], rows: Rows, decision: str, letters: Rows = ()) -> int:
        batches = list(rows)
        self.with_letters += ["decision" for _ in letters]
        self.committed.append((positions, batches, decision))
        return sum(batch.num_rows for batch in batches)

    def release(self) -> None:
        self.released += 1


JOB = stateful_job(identity="this")
BEHIND = Position(5, "id", 2, "this", 3)
STARTS, TARGETS = {LANE: 5, OTHER: 5}, {LANE: 8, OTHER: 5}


def lanes_at(store: Store) -> Lanes:
    return Lanes(JOB, cast(Sink, store), b"", 2, {"in": "id"}, batch=3)


def test_every_lane_is_in_the_transaction_of_a_batch() -> None:
    store = Store({LANE: BEHIND, OTHER: BEHIND})
    lanes = lanes_at(store)
    assert lanes.decide_batch(STARTS, TARGETS, ROWS, 4, "decision") == 3
    positions = {LANE: replace(BEHIND, offset=8, batch=4), OTHER: replace(BEHIND, batch=4)}
    assert store.committed == [(positions, ROWS, "decision")]
    assert lanes.batch == 4


class Writer:
    """Writes output outside of the commit of a decision, unless it fails."""

    def __init__(self, store: Store, *, fails: bool) -> None:
        self._store, self._fails = store, fails

    def write(self, rows: Rows, letters: Rows = (), *, acknowledged: bool) -> int:
        if self._fails:
            raise JobError(Reason.BATCH_FAILED, "not acknowledged")
        self._store.with_letters += [f"acknowledged={acknowledged}" for _ in letters]
        self._store.committed.append(({}, list(rows), f"acknowledged={acknowledged}"))
        return 3


def store_of(*, apart: bool, fails: bool = False) -> Store:
    """A store that has decided batch 3. apart: whether it writes output outside of the commit of a decision."""
    store = Store({LANE: BEHIND, OTHER: BEHIND})
    store.writer = Writer(store, fails=fails) if apart else None
    return store


def decided(
    guarantee: Guarantee, *, apart: bool = True, fails: bool = False
) -> tuple[list[str], list[Range], JobError | None]:
    """What reaches the store of a batch, in its order; the ranges that are abandoned; the error."""
    store = store_of(apart=apart, fails=fails)
    subject = Stateful(replace(JOB, guarantee=guarantee), SETTINGS)
    decision = replace(DECISION, batch=4, starts=STARTS, positions=TARGETS)
    ranges, error = (Range(LANE, 5, 8),), None
    recorded: Any = SimpleNamespace(record_written=lambda *_: None)
    try:
        assert subject._commit(lanes_at(store), decision, ROWS, ranges, recorded) == 3
    except JobError as e:
        error = e
    lost = subject.abandon((), error, lanes_at(store)) if error else 0
    assert lost in (0, 3)
    steps = ["decision" if text.startswith("{") else text for _, _, text in store.committed]
    with_rows = [
        f"{step} with rows" if rows else step for step, (_, rows, _) in zip(steps, store.committed, strict=True)
    ]
    return with_rows, list(ranges) if lost else [], error


@pytest.mark.parametrize(
    ("guarantee", "steps"),
    [
        (Guarantee.EXACTLY_ONCE, ["decision with rows"]),
        (Guarantee.AT_LEAST_ONCE, ["acknowledged=True with rows", "decision"]),
        (Guarantee.AT_MOST_ONCE, ["decision", "acknowledged=False with rows"]),
    ],
)
def test_the_guarantee_chooses_the_order_of_output_and_decision(guarantee: Guarantee, steps: list[str]) -> None:
    assert decided(guarantee) == (steps, [], None)


@pytest.mark.parametrize("guarantee", Guarantee)
def test_a_store_that_takes_both_in_one_commit_does_so_under_each_guarantee(guarantee: Guarantee) -> None:
    assert decided(guarantee, apart=False) == (["decision with rows"], [], None)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("guarantee", Guarantee)
def test_dead_letters_are_written_in_the_step_of_the_output(guarantee: Guarantee, apart: bool) -> None:
    store = store_of(apart=apart)
    decision = replace(DECISION, batch=4, starts=STARTS, positions=TARGETS)
    recorded: Any = SimpleNamespace(record_written=lambda *_: None)
    subject = Stateful(replace(JOB, guarantee=guarantee), SETTINGS)
    subject._commit(lanes_at(store), decision, ROWS, (), recorded, letters=[ROWS[1]])
    [step_of_output] = [text for _, rows, text in store.committed if rows]
    assert store.with_letters == ["decision" if step_of_output.startswith("{") else step_of_output]


def test_output_that_is_not_acknowledged_is_not_decided() -> None:
    steps, lost, error = decided(Guarantee.AT_LEAST_ONCE, fails=True)
    assert (steps, lost, error and error.reason) == ([], [], Reason.BATCH_FAILED)


def test_output_that_is_not_written_behind_its_decision_is_counted_as_lost() -> None:
    steps, lost, error = decided(Guarantee.AT_MOST_ONCE, fails=True)
    assert (steps, lost, error and error.reason) == (["decision"], [Range(LANE, 5, 8)], Reason.BATCH_FAILED)


def test_a_driver_that_was_replaced_writes_nothing_before_it_is_refused() -> None:
    store = Store({LANE: BEHIND, OTHER: replace(BEHIND, driver=3)})
    store.writer = Writer(store, fails=False)
    subject = Stateful(replace(JOB, guarantee=Guarantee.AT_LEAST_ONCE), SETTINGS)
    decision = replace(DECISION, batch=4, starts=STARTS, positions=TARGETS)
    with pytest.raises(JobError) as e:
        subject._commit(lanes_at(store), decision, ROWS, (), cast(Any, None))
    assert (e.value.reason, store.committed, store.released) == (Reason.SUPERSEDED, [], 1)


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        (None, Reason.POSITION_LOST),
        (replace(BEHIND, driver=0, pipeline="", batch=None), Reason.POSITIONS_MOVED),
        (replace(BEHIND, driver=3), Reason.SUPERSEDED),
        (replace(BEHIND, driver=1), Reason.POSITION_CONFLICT),
        (replace(BEHIND, offset=8, batch=4), Reason.POSITION_CONFLICT),  # committed before
        (replace(BEHIND, batch=4), Reason.POSITION_CONFLICT),  # the same, of a batch without records
        (replace(BEHIND, batch=None), Reason.POSITION_CONFLICT),
        (replace(BEHIND, topic_id="other"), Reason.TOPIC_REPLACED),
    ],
)
def test_positions_of_another_batch_or_driver_refuse_the_decision(position: Position | None, reason: Reason) -> None:
    store = Store({LANE: BEHIND, OTHER: position})
    with pytest.raises(JobError) as e:
        lanes_at(store).decide_batch(STARTS, TARGETS, ROWS, 4, "decision")
    assert (e.value.reason, store.committed, store.released) == (reason, [], 1)
