"""A batch's tasks answer for their own ranges, each once, or the batch is not delivered."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream import positions
from ackwright_stream.delivery import batch as module
from ackwright_stream.delivery.batch import Answer, Batch, Work, run, run_staged, with_partitions
from ackwright_stream.delivery.dead_letters import Counts
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import SOURCE, UNMERGED, Lane, Range, Task
from ackwright_stream.reports import Failure, LostTopic
from ackwright_stream.sinks.base import Rows, StagedRows
from minimal_job import minimal_job

TASKS = (
    Task(0, (Range(Lane("t", 0), 0, 5), Range(Lane("t", 2), 1, 4)), (1, 0)),
    Task(1, (Range(Lane("t", 1), 7, 9),), (2,)),
)


def answer(number: int, task: Task, **columns: Any) -> Any:
    return SimpleNamespace(
        **{
            "task": number,
            "ranges": repr(task.ranges),
            "outcome": "done",
            "records": 2,
            "read": 0,
            "letters": 0,
            "staged": None,
            "failure": None,
            **columns,
        }
    )


def failed(number: int, failure: Failure) -> Any:
    return answer(number, TASKS[number], outcome=None, failure=json.dumps(failure.as_json()))


def batch(*answers: Any) -> tuple[Batch, dict[str, str]]:
    """A batch whose tasks have these answers; and the properties that its Spark job would have."""
    properties: dict[str, str] = {}
    session = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=properties.__setitem__))
    execution: Any = None
    rows: Any = SimpleNamespace(sparkSession=session, collect=lambda: list(answers))
    return Batch(rows, execution, TASKS), properties


def test_results_in_the_order_of_the_tasks() -> None:
    subject, properties = batch(answer(1, TASKS[1], outcome="skipped", records=0), answer(0, TASKS[0]))
    assert run(subject) == [Answer(0, Outcome.DONE, 2), Answer(1, Outcome.SKIPPED, 0)]
    assert [json.loads(ranges) for ranges in properties.values()] == [
        [[["t", 0, 0, 5, 1], ["t", 2, 1, 4, 0]], [["t", 1, 7, 9, 2]]]
    ]


def test_what_tasks_have_staged_reaches_the_driver_in_their_order() -> None:
    answers = [answer(1, TASKS[1], staged=b"b", read=3, letters=1), answer(0, TASKS[0], staged=b"a", records=5)]
    answers[1].read = 6
    subject, _ = batch(*answers)
    assert run_staged(subject) == (StagedRows((b"a", b"b"), 7), Counts(9, 1))


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (answer(0, TASKS[0]),),
        (answer(0, TASKS[0]), answer(0, TASKS[0])),
        (answer(0, TASKS[0]), answer(1, TASKS[1]), answer(1, TASKS[1])),
        (answer(0, TASKS[1]), answer(1, TASKS[0])),
        (
            answer(0, TASKS[0]),
            answer(1, Task(1, (Range(Lane("t", 1), 5, 7),), (2,))),
        ),  # of the last batch, which is skipped: its rows would be lost
    ],
)
def test_a_range_without_an_answer_is_not_delivered(answers: tuple[Any, ...]) -> None:
    with pytest.raises(JobError) as caught:
        run(batch(*answers)[0])
    assert caught.value.reason is Reason.UNEXPECTED


def test_an_error_that_a_task_met_comes_first() -> None:
    with pytest.raises(JobError, match="another driver") as caught:
        run(batch(failed(1, Failure(Reason.SUPERSEDED, "another driver")))[0])
    assert caught.value.reason is Reason.SUPERSEDED


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        # Otherwise the next batch would be as large, and time out again.
        (("PositionConflict", "TransactionTimedOut"), Reason.TRANSACTION_TIMED_OUT),
        (("TransactionTimedOut", "Superseded"), Reason.SUPERSEDED),
        (("AuthorizationFailed", "PositionConflict"), Reason.AUTHORIZATION_FAILED),
    ],
)
def test_of_several_failures_the_one_with_the_most_consequences_decides(
    reasons: tuple[str, str], expected: Reason
) -> None:
    answers = [failed(n, Failure(Reason(reason), "")) for n, reason in enumerate(reasons)]
    with pytest.raises(JobError) as caught:
        run(batch(*answers)[0])
    assert caught.value.reason is expected
    assert caught.value.slots == (reasons.index(expected.value),)


def test_a_failure_names_all_tasks_with_its_reason() -> None:
    answers = [failed(n, Failure(Reason.TOO_MANY_DEAD_LETTERS, f"of task {n}")) for n in (0, 1)]
    with pytest.raises(JobError, match="of task 0") as caught:
        run(batch(*answers)[0])
    assert caught.value.slots == (0, 1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_worker_has_the_task_that_the_driver_planned_and_answers_for_it(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The work travels as a pickle, the task as a property of the batch's Spark job, the answer as a row."""
    sent, properties = batch()
    with pytest.raises(JobError, match="the 2 tasks of a batch answered for other ranges"):
        run(sent)
    context = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: number)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(module, "require_complete_input", lambda rows, _: rows)
    received: list[tuple[Work, Task, Any]] = []

    def process(work: Work, task: Task, rows: Iterator[pa.RecordBatch], letters: Rows) -> tuple[Outcome, int]:
        assert list(letters) == []
        received.append((work, task, [n for piece in rows for n in piece.column(SOURCE).to_pylist()]))
        return Outcome.DONE, 3

    work = Work(minimal_job(), 7, {"t": "id"}, b"\x00CGMDv2\xff")
    rows = pa.record_batch({UNMERGED: pa.array(TASKS[number].sources, pa.int32())})
    (row,) = module._in_worker(pickle.loads(pickle.dumps(work)), process, iter([rows]))  # noqa: S301
    assert received == [(work, TASKS[number], [lane.partition for lane in TASKS[number].lanes])]
    assert row.to_pylist() == [vars(answer(number, TASKS[number], records=3))]


def test_a_failure_reaches_the_driver_as_the_task_raised_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, properties = batch()
    with pytest.raises(JobError):
        run(sent)
    context = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 0)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    monkeypatch.setattr(module, "require_complete_input", lambda rows, _: rows)
    error = positions.topic_replaced(Lane("t", 0), "its position 5", "old", "now")

    def process(*_: object) -> tuple[Outcome, int]:
        raise error

    (row,) = module._in_worker(Work(minimal_job(), 7, {"t": "now"}, b""), process, iter([]))
    with pytest.raises(JobError) as caught:
        run(batch(SimpleNamespace(**row.to_pylist()[0]))[0])
    assert caught.value.failure == error.failure
    assert caught.value.failure.lost_topic == LostTopic("t", "old", "now")


def test_a_task_without_ranges_of_its_own_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    context = SimpleNamespace(getLocalProperty=lambda _: None, partitionId=lambda: 0)
    monkeypatch.setattr(module, "TaskContext", SimpleNamespace(get=lambda: context))
    work: Any = None
    with pytest.raises(JobError, match="does not know its ranges") as caught:
        list(module._in_worker(work, lambda *_: pytest.fail("processed"), iter([])))
    assert caught.value.reason is Reason.UNEXPECTED


def rows_from(*sources: int) -> pa.RecordBatch:
    """A row from each of these partitions, by Spark's numbers."""
    values = pa.array([b"%d" % n for n in range(len(sources))])
    return pa.record_batch({"value": values, UNMERGED: pa.array(sources, pa.int32()), "key": values})


def test_rows_get_the_partitions_of_their_lanes() -> None:
    task = Task(3, tuple(Range(Lane("t", p), 0, 9) for p in (40, 0, 7)), (5, 2, 9))
    pieces = [rows_from(2, 2, 9, 5), rows_from(), rows_from(9, 5).slice(1)]
    renamed = list(with_partitions(iter(pieces), task))
    assert [piece.column(SOURCE).to_pylist() for piece in renamed] == [[0, 0, 7, 40], [], [40]]
    for before, after in zip(pieces, renamed, strict=True):
        assert after.schema.names == ["value", SOURCE, "key"]
        assert after.drop_columns(SOURCE) == before.drop_columns(UNMERGED)


def test_rows_of_a_sink_that_keeps_no_partitions_stay_as_they_are() -> None:
    piece = rows_from(2).rename_columns(["value", SOURCE, "key"])  # a column of the transform, of that name
    (same,) = with_partitions(iter([piece]), TASKS[0])
    assert same is piece


def test_a_row_from_a_partition_that_the_task_does_not_have_is_not_guessed_at() -> None:
    """Its partition is null, which is no lane's."""
    (renamed,) = with_partitions(iter([rows_from(0, 77)]), TASKS[0])
    assert renamed.column(SOURCE).to_pylist() == [2, None]
