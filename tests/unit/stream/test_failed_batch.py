"""A batch that fails names its offsets: among them is the record that a transform or a sink failed at."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ackwright_stream import ownership
from ackwright_stream import query as module
from ackwright_stream.delivery.batch import Output
from ackwright_stream.delivery.batch_size import BatchSize
from ackwright_stream.delivery.claims import FailedBatch
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.ownership import Ownership
from ackwright_stream.positions import Lane, Range, Task
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query, of_batch
from minimal_job import minimal_job

RANGES = [Range(Lane("in", n), 10 * n, 10 * n + 5) for n in range(7)]


class Failing:
    """A guarantee under which each batch fails with this error, and cannot be abandoned."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def moves_first(self, _: object) -> bool:
        return True

    def deliver(self, *_: object) -> None:
        raise self.error

    def abandon(self, *_: object) -> int:
        return 0


def failed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> JobError | Exception:
    return run(monkeypatch, Failing(error))[1]


def run(monkeypatch: pytest.MonkeyPatch, guarantee: Failing) -> tuple[Query, JobError | Exception]:
    """The query, and the error that its first batch fails with."""
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[None]))
    lanes: Any = SimpleNamespace(sink=None, driver=3)
    positions = {r.lane: r.start for r in RANGES[:1]}
    subject = Query(spark, minimal_job(), Ownership(positions, 0, lanes), Progress(minimal_job()), threading.Event())
    monkeypatch.setattr(subject, "_delivery", guarantee)
    monkeypatch.setattr(module, "running_execution", lambda *_: None)
    monkeypatch.setattr(module, "tasks", lambda _: [Task(0, tuple(RANGES[:1]), (0,))])
    rows: Any = SimpleNamespace()
    with pytest.raises((JobError, RuntimeError)) as caught:
        subject._deliver(rows, 3, Output(rows))
    return subject, caught.value


def test_a_failed_batch_names_its_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    error = failed(monkeypatch, RuntimeError("boom"))
    assert isinstance(error, JobError)
    assert (error.reason, error.message) == (Reason.BATCH_FAILED, "boom; the batch has the offsets in-0@0 to 4")


def test_another_failure_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = JobError(Reason.POSITION_LOST, "gone")
    assert failed(monkeypatch, lost) is lost


def test_of_many_partitions_some_are_named() -> None:
    message = of_batch(JobError(Reason.BATCH_FAILED, "boom"), RANGES).message
    assert message.endswith("in-3@30 to 34, in-4@40 to 44 and 2 more partitions")


def test_the_driver_learns_of_the_batch_whose_claims_it_counts_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its positions may be read only when the sink answers again."""
    unreachable = JobError(Reason.SINK_UNREACHABLE, "no answer")

    class Unreachable(Failing):
        def abandon(self, *_: object) -> int:
            raise unreachable

    expected = FailedBatch(tuple(RANGES[:1]), driver=3, abandoned=0)
    for guarantee in (Failing(unreachable), Unreachable(unreachable)):
        subject, error = run(monkeypatch, guarantee)
        assert error is unreachable
        monkeypatch.setattr(ownership, "complete", lambda error, _: error)
        assert subject._failed(unreachable).batch == expected


@pytest.mark.parametrize(("ranges", "limit"), [(RANGES[:1], 1), ([], 1_000)], ids=["of records", "without records"])
def test_a_batch_without_records_that_timed_out_is_not_followed_by_smaller_ones(
    monkeypatch: pytest.MonkeyPatch, ranges: list[Range], limit: int
) -> None:
    """Its output is of state that has ended, whatever the next batches read."""
    spark: Any = SimpleNamespace(streams=SimpleNamespace(active=[None]))
    lanes: Any = SimpleNamespace(sink=None, driver=3)
    owned = Ownership({r.lane: r.start for r in ranges}, 0, lanes)
    size = BatchSize.from_limits(1_000, 1)
    subject = Query(spark, minimal_job(), owned, Progress(minimal_job()), threading.Event(), size=size)
    monkeypatch.setattr(subject, "_delivery", Failing(JobError(Reason.TRANSACTION_TIMED_OUT, "61 s")))
    monkeypatch.setattr(subject, "_chain", SimpleNamespace())
    monkeypatch.setattr(module, "running_execution", lambda *_: None)
    monkeypatch.setattr(module, "of_stateful", lambda _: [Task(0, tuple(ranges), (0,))] if ranges else [])
    rows: Any = SimpleNamespace()
    with pytest.raises(JobError):
        subject._deliver(rows, 3, Output(rows))
    assert subject.size is not None
    assert subject.size.limit == limit
