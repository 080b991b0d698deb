"""A job and its standby as one job: which of them reports, when another one is started, and the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from ackwright.local.pair import Pair
from ackwright.local.supervise import Job
from ackwright_stream.jobspec import ExitCode
from ackwright_stream.reports import ProgressReport, State
from minimal_job import minimal_report

KILLED = 137


class StubJob:
    def __init__(self, number: int, calls: list[str]) -> None:
        self.number, self._calls = number, calls
        self.code: int | None = None
        self.state = State.STARTING
        self.log = Path(str(number))

    def poll(self) -> int | None:
        return self.code

    def progress(self) -> ProgressReport:
        return minimal_report(state=self.state, driver=self.number)

    def drain(self) -> None:
        self._calls.append(f"drain {self.number}")

    def kill(self) -> None:
        self._calls.append(f"kill {self.number}")


class Stubs:
    """A pair of stubs, and what was called."""

    def __init__(self) -> None:
        self.jobs: list[StubJob] = []
        self.calls: list[str] = []
        self.pair = Pair(self._start, lambda code: self.calls.append(f"taken over from {code}"))

    def _start(self, number: int) -> Job:
        self.jobs.append(StubJob(number, self.calls))
        return cast(Job, self.jobs[-1])

    def next_answer(self) -> Any:
        """One round of follow(): the exit code, or else the number of the job that reports."""
        code = self.pair.poll()
        if code is not None:
            return f"ended {code}"
        report = self.pair.progress()
        return report.driver if report else None

    def running(self) -> Stubs:
        """With a standby."""
        self.jobs[0].state = State.RUNNING
        assert self.next_answer() == 0
        self.jobs[1].state = State.STANDBY
        return self


def test_the_standby_is_started_when_the_first_job_delivers() -> None:
    stubs = Stubs()
    assert (stubs.next_answer(), len(stubs.jobs)) == (0, 1)
    stubs.jobs[0].state = State.RUNNING
    assert (stubs.next_answer(), len(stubs.jobs)) == (0, 2)
    assert (stubs.next_answer(), len(stubs.jobs)) == (0, 2)


def test_a_killed_job_is_replaced_when_the_standby_delivers() -> None:
    stubs = Stubs().running()
    stubs.jobs[0].code = KILLED
    assert (stubs.next_answer(), len(stubs.jobs)) == (1, 2)
    stubs.jobs[1].state = State.RUNNING
    assert (stubs.next_answer(), len(stubs.jobs)) == (1, 3)
    assert stubs.calls == ["taken over from 137"]


def test_a_killed_standby_is_replaced() -> None:
    stubs = Stubs().running()
    stubs.jobs[1].code = KILLED
    assert (stubs.next_answer(), len(stubs.jobs)) == (0, 3)


def test_a_job_that_ends_by_itself_is_not_replaced_and_the_last_one_gives_the_exit_code() -> None:
    stubs = Stubs().running()
    stubs.jobs[0].code = ExitCode.HALTED
    stubs.jobs[1].state = State.RUNNING
    assert (stubs.next_answer(), len(stubs.jobs)) == (1, 2)
    stubs.jobs[1].code = ExitCode.UNAVAILABLE
    assert stubs.next_answer() == f"ended {ExitCode.UNAVAILABLE}"
    assert (stubs.pair.log, stubs.calls) == (Path("1"), [])


def test_a_drain_begins_with_the_standby_and_starts_no_other() -> None:
    stubs = Stubs().running()
    stubs.jobs[0].code = KILLED
    stubs.jobs[1].state = State.RUNNING
    assert stubs.next_answer() == 1
    stubs.pair.drain()
    assert stubs.calls == ["taken over from 137", "drain 2", "drain 1"]
    stubs.jobs[2].code = ExitCode.OK
    assert (stubs.next_answer(), len(stubs.jobs)) == (1, 3)
    stubs.jobs[1].code = ExitCode.OK
    assert stubs.next_answer() == f"ended {ExitCode.OK}"
    assert stubs.pair.log == Path("1")
