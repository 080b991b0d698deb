"""Requests to a directory whose outcome is unknown, and files that come late."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.files.storage import Directory, Draft
from integration.support.files_stores import A, Driver, Files, conflict, job, overtaken


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
    driver.prepared(Range(A, 0, 10))()
    unanswered(lambda: driver.lanes.advance_all([Range(A, 0, 10)]), monkeypatch, arrives=arrives)
    following = Driver(spec)
    position = following.sink.read([A])[A]
    assert position is not None
    start = position.offset
    assert start == (10 if arrives else 0)
    following.prepared(Range(A, start, 20))()
    following.lanes.advance_all([Range(A, 0, 20)])
    assert files.offsets() == sorted([*range(10), *range(start, 20)])


@pytest.mark.parametrize("arrives", [True, False])
def test_after_an_unknown_outcome_of_the_rows_none_is_repeated_at_most_once(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
) -> None:
    """The position has moved. The next driver continues behind it."""
    spec = job(tmp_path, files.path)
    driver, batch = Driver(spec), Range(A, 0, 10)
    assert driver.task().advance(0, [batch]) == (Outcome.DONE, 0)
    unanswered(driver.prepared(batch), monkeypatch, arrives=arrives)
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
