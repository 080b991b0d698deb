"""The order of the guarantees with a sink whose driver commits what tasks have staged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream import delivery
from ackwright_stream.delivery import at_least_once, at_most_once, batch, exactly_once
from ackwright_stream.delivery.batch import Batch, BatchResult
from ackwright_stream.delivery.dead_letters import Counts
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.sinks.base import Rows, StagedRows
from minimal_job import minimal_job

A, B = Lane("in", 0), Lane("in", 1)
TASKS = (Task(0, (Range(A, 0, 5),), (0,)), Task(1, (Range(B, 7, 9),), (1,)))
RANGES = (Range(A, 0, 5), Range(B, 7, 9))
ROWS = StagedRows((b"of task 0", b"of task 1"), 7)
READ = Counts(9, 2)


class Steps:
    """Lanes, sink and tasks that record what is done, and fail at one step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str = "", outcome: Outcome = Outcome.DONE) -> None:
        self.done: list[str] = []
        self._fails, self._outcome = fails, outcome
        staging = SimpleNamespace(publish=lambda rows, membership: self._step("publish", rows, membership))
        self.sink = SimpleNamespace(staging=staging, spark_writer=None)
        self.membership = b"7"
        for module in (at_least_once, at_most_once, exactly_once):
            monkeypatch.setattr(module, "run_staged", self._run)

    def _run(self, _: Batch) -> tuple[StagedRows, Counts]:
        self._step("tasks")
        return ROWS, READ

    def _step(self, name: str, *arguments: object) -> None:
        if name == self._fails:
            raise JobError(Reason.SINK_UNREACHABLE, "no answer")
        assert arguments in ((), (ROWS, b"7"))
        self.done.append(name)

    def advance(self, slot: int, ranges: tuple[Range, ...]) -> tuple[Outcome, int]:
        assert ranges == RANGES
        self._step("claim")
        return self._outcome, 0

    def advance_all(self, ranges: tuple[Range, ...]) -> None:
        assert ranges == RANGES
        self._step("advance")

    def advance_staged(self, staging: object, ranges: tuple[Range, ...], rows: StagedRows) -> tuple[Outcome, int]:
        assert (staging, ranges, rows) == (self.sink.staging, RANGES, ROWS)
        self._step("commit")
        return self._outcome, ROWS.records if self._outcome is Outcome.DONE else 0

    def deliver(self, guarantee: Guarantee) -> BatchResult:
        lanes: Any = self
        frame: Any = None
        return delivery.for_job(minimal_job(guarantee)).deliver(Batch(frame, frame, TASKS), lanes)


@pytest.mark.parametrize(
    ("guarantee", "steps"),
    [
        (Guarantee.EXACTLY_ONCE, ["tasks", "commit"]),
        (Guarantee.AT_LEAST_ONCE, ["tasks", "publish", "advance"]),
        (Guarantee.AT_MOST_ONCE, ["claim", "tasks", "publish"]),
    ],
)
def test_each_guarantee_has_its_order(monkeypatch: pytest.MonkeyPatch, guarantee: Guarantee, steps: list[str]) -> None:
    driver = Steps(monkeypatch)
    assert driver.deliver(guarantee) == BatchResult({A: 5, B: 9}, 7, read=READ)
    assert driver.done == steps
    for n, step in enumerate(steps):  # nothing comes after a step that failed
        failing = Steps(monkeypatch, fails=step)
        with pytest.raises(JobError, match="no answer"):
            failing.deliver(guarantee)
        assert failing.done == steps[:n]


def test_a_batch_that_was_committed_before_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly-once: after an unknown outcome. At-most-once: what became of the rows is not known, so they are lost."""
    exactly = Steps(monkeypatch, outcome=Outcome.SKIPPED)
    assert exactly.deliver(Guarantee.EXACTLY_ONCE) == BatchResult({A: 5, B: 9}, skipped=(A, B), read=READ)
    at_most = Steps(monkeypatch, outcome=Outcome.SKIPPED)
    assert at_most.deliver(Guarantee.AT_MOST_ONCE) == BatchResult({A: 5, B: 9}, abandoned=7, skipped=(A, B))
    assert at_most.done == ["claim"], "its tasks do not run"


class Sink:
    """A sink that stages rows and writes dead letters, and records the order."""

    def __init__(self, fails: bool = False) -> None:
        self.done: list[object] = []
        self._fails = fails
        self.staging = self

    def stage(self, rows: Rows) -> tuple[int, bytes]:
        self.done += [batch.num_rows for batch in rows]
        return 3, b"staged"

    def write_dead_letters(self, letters: pa.RecordBatch) -> None:
        if self._fails:
            raise JobError(Reason.BATCH_FAILED, "not acknowledged in time")
        self.done.append(f"{letters.num_rows} dead letters")


def staged(sink: Sink) -> tuple[Outcome, int, bytes]:
    work: Any = SimpleNamespace(lanes=lambda *, transactional: SimpleNamespace(sink=sink))
    rows = iter([pa.record_batch({"n": [1, 2, 3]})])
    return batch.stage(work, TASKS[0], rows, [pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": [3]})])


def test_a_task_answers_when_its_dead_letters_are_durable() -> None:
    sink = Sink()
    assert staged(sink) == (Outcome.DONE, 3, b"staged")
    assert sink.done == [3, "2 dead letters", "1 dead letters"]
    with pytest.raises(JobError, match="not acknowledged in time"):
        staged(Sink(fails=True))


def test_too_many_dead_letters_abandon_the_whole_batch_that_the_driver_has_claimed() -> None:
    error = JobError(Reason.TOO_MANY_DEAD_LETTERS, "")
    error.slots = (1,)
    lanes: Any = SimpleNamespace(sink=Sink())
    assert delivery.for_job(minimal_job(Guarantee.AT_MOST_ONCE)).abandon(TASKS, error, lanes) == 7
