"""A batch's tasks answer for their own ranges, each once, or the batch is not delivered."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream.delivery.batch import Batch, run
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Lane, Range

RANGES = (Range(Lane("t", 0), 0, 5), Range(Lane("t", 1), 7, 9))


def answer(task: int, own: Range, **columns: Any) -> Any:
    return SimpleNamespace(
        **{
            "task": task,
            "range": repr(own),
            "outcome": "done",
            "records": 2,
            "reason": None,
            "message": None,
            **columns,
        }
    )


def batch(*answers: Any) -> tuple[Batch, dict[str, str]]:
    """A batch whose tasks have these answers; and the properties that its Spark job would have."""
    properties: dict[str, str] = {}
    session = SimpleNamespace(sparkContext=SimpleNamespace(setLocalProperty=properties.__setitem__))
    execution: Any = None
    rows: Any = SimpleNamespace(sparkSession=session, collect=lambda: list(answers))
    return Batch(rows, execution, RANGES), properties


def test_results_in_the_order_of_the_tasks() -> None:
    subject, properties = batch(answer(1, RANGES[1], outcome="skipped", records=0), answer(0, RANGES[0]))
    assert run(subject) == [(0, Outcome.DONE, 2), (1, Outcome.SKIPPED, 0)]
    assert [json.loads(ranges) for ranges in properties.values()] == [[["t", 0, 0, 5], ["t", 1, 7, 9]]]


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (answer(0, RANGES[0]),),
        (answer(0, RANGES[0]), answer(0, RANGES[0])),
        (answer(0, RANGES[0]), answer(1, RANGES[1]), answer(1, RANGES[1])),
        (answer(0, RANGES[1]), answer(1, RANGES[0])),
        (
            answer(0, RANGES[0]),
            answer(1, Range(Lane("t", 1), 5, 7)),
        ),  # of the last batch, which is skipped: its rows would be lost
    ],
)
def test_a_range_without_an_answer_is_not_delivered(answers: tuple[Any, ...]) -> None:
    with pytest.raises(JobError) as caught:
        run(batch(*answers)[0])
    assert caught.value.reason is Reason.UNEXPECTED


def test_an_error_that_a_task_met_comes_first() -> None:
    failed = answer(1, RANGES[1], outcome=None, reason="Superseded", message="another driver")
    with pytest.raises(JobError, match="another driver") as caught:
        run(batch(failed)[0])
    assert caught.value.reason is Reason.SUPERSEDED
