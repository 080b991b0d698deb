"""A job and its standby, followed like one job: when the one that delivers ends, the other one takes over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ackwright.local.supervise import Job
from ackwright_stream.reports import Failure, ProgressReport, State

_SIGNALLED = 128  # exit codes from here on are those of processes that a signal has ended
_WAITING = (State.STARTING, State.STANDBY)


class Pair:
    """Two jobs of one pipeline. A third one replaces a job that was killed.

    A job that ends by itself has a reason to, which its standby will meet as well: it is not replaced.
    """

    def __init__(
        self,
        start: Callable[[int], Job],  # starts the job with this number, from 0
        on_takeover: Callable[[int], None],  # is called with the exit code of a job that the other one survives
    ) -> None:
        self._start, self._on_takeover = start, on_takeover
        self._started = 1
        self._jobs = [start(0)]  # the one that delivers is the first, as far as is known
        self._last = self._jobs[0]  # of which failure(), final() and log tell
        self._closed = False  # whether no further job is started

    @property
    def log(self) -> Path:
        return self._last.log

    def poll(self) -> int | None:
        """The exit code of the last job, None while one runs; starts the standby when the first job delivers."""
        code: int | None = None
        for job in tuple(self._jobs):
            code = job.poll()
            if code is None:
                continue
            self._jobs.remove(job)
            self._closed = self._closed or code < _SIGNALLED
            if self._jobs and not self._closed:
                self._on_takeover(code)
            if not self._jobs:
                self._last = job
                return code
        return None

    def progress(self) -> ProgressReport | None:
        """The progress of the job that delivers, or else of one that is about to."""
        reports = [(report, job) for job in self._jobs if (report := job.progress())]
        reports.sort(key=lambda pair: pair[0].state in _WAITING)
        if not reports:
            return None
        report, job = reports[0]
        self._jobs.sort(key=lambda other: other is not job)
        if report.state is State.RUNNING and len(self._jobs) == 1 and not self._closed:
            self._jobs.append(self._start(self._started))
            self._started += 1
        return report

    def drain(self) -> None:
        """Signals both to end, the standby first: it must not take over."""
        self._closed = True
        for job in reversed(self._jobs):
            job.drain()

    def kill(self) -> None:
        self._closed = True
        for job in self._jobs:
            job.kill()

    def final(self) -> ProgressReport | None:
        """The last progress of the job that ended last, exact; None unless it ended without a failure."""
        return self._last.final()

    def failure(self) -> Failure | None:
        """The failure with which the last job ended."""
        return self._last.failure()
