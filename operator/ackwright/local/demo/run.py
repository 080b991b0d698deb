"""Runs one pipeline of the demo from the first record to the last while processes are killed with SIGKILL.

The job is the one that `ackwright run` starts; after a kill the demo only starts it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from ackwright.errors import AckwrightError
from ackwright.local.demo import positions
from ackwright.local.demo.kills import Kill, Target, fault_point_name
from ackwright.local.demo.pipelines import Sink
from ackwright.local.demo.results import Measurements, RateMeter, has_resumed
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.postgres import EmbeddedPostgres
from ackwright.local.supervise import Job
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import ExitCode, JobSpec, Reason
from ackwright_stream.reports import StartPart

POINTS = "ACKWRIGHT_POINTS"  # the job's variable for its fault points; a test compares the two names
_POLL_INTERVAL = 0.05  # seconds
_TIMEOUT = 300.0  # seconds; a start that takes 13 s on an idle machine took 115 s on two cores with a load of 15
_KILL_DELAY = 0.5  # seconds from reaching a fault point to the kill, in which other tasks continue as before a crash
_OUTAGE = 8.0  # seconds; a killed broker starts again after that at the latest; its session expires after 6
_DATABASE_OUTAGE = 3.0  # seconds; long enough that attempts of the driver fail
_RESTARTED = frozenset({ExitCode.FAILED, ExitCode.UNAVAILABLE})  # exit codes after which the operator restarts a driver
_MAX_FAILURES = 3


class Display(Protocol):
    """Shows the events of a run."""

    def progress(self, done: int, total: int, rate: float, starting: StartPart | None = None) -> None: ...
    def event(self, text: str) -> None: ...
    def killed(self, text: str) -> None: ...


class DemoRun:
    """One pipeline whose processes are killed.

    ends: the end offsets of the source, to which nothing is written during the run.
    directory: receives one subdirectory per driver.
    database: the server of the sink; None: nothing of the sink can be killed.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        job: JobSpec,
        ends: Mapping[int, int],
        *,
        directory: Path,
        watch: Watch,
        display: Display,
        database: EmbeddedPostgres | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka, self._spec, self._ends, self._directory = kafka, job, ends, directory
        self._watch, self._display, self._database, self._clock = watch, display, database, clock
        self._points = directory / "points"
        self._points.mkdir(parents=True, exist_ok=True)
        self._reader = positions.reader(job, ends)
        self._total = sum(ends.values())
        self._positions: dict[int, int] = {}
        self._meter = RateMeter()
        self._drivers = 0
        self._failures = 0
        self._resume_seconds: list[float] = []
        self._past_start: Job | None = None  # the driver that has delivered a batch
        self._job = self._start_driver()

    def run(self, kills: Sequence[Kill]) -> Measurements:
        """Runs the pipeline until all records are processed, and drains the driver.

        Raises AckwrightError on failure or timeout.
        """
        try:
            self._wait_until(lambda: self._processed > 0, "the first records are processed")
            started_at, processed_at_start = self._clock(), self._processed
            for kill in kills:
                self._wait_until(lambda at=kill.at: self._processed >= at * self._total, "records are processed")  # type: ignore[misc]
                self._execute(kill)
            self._wait_until(lambda: self._processed >= self._total, "all records are processed")
            active_seconds = self._clock() - started_at - sum(self._resume_seconds)
            self._drain()
        finally:
            self._job.kill()
        rate = (self._total - processed_at_start) / active_seconds if active_seconds > 0 else 0.0
        return Measurements(len(kills), rate, tuple(self._resume_seconds))

    # -- kills ---------------------------------------------------------------------------------------------------------

    def _execute(self, kill: Kill) -> None:
        match kill.target:
            case Target.DRIVER:
                self._kill_driver(kill)
            case Target.WORKER:
                self._kill_worker(kill)
            case Target.BROKER:
                self._kill_broker(kill)
            case Target.DATABASE:
                self._kill_database()
        self._display.event(f"delivery has resumed on every partition after {self._resume_seconds[-1]:.1f} s")

    def _kill_driver(self, kill: Kill) -> None:
        """Kills Python and the JVM with Spark's executor; the Python workers end when they lose the JVM."""
        point = self._wait_at_fault_point(kill, "hang")
        kill_at = self._clock() + _KILL_DELAY
        self._wait_until(lambda: self._clock() >= kill_at, "the time of the kill is reached")
        self._job.kill()
        killed_at = self._clock()
        self._display.killed(f"killed the driver {kill.moment}, at {point} ({self._share})")
        self._job = self._start_driver()
        self._wait_until_resumed(killed_at, self._read_positions())

    def _kill_worker(self, kill: Kill) -> None:
        point = self._wait_at_fault_point(kill, "kill")
        killed_at = self._clock()
        self._display.killed(f"killed a Python worker {kill.moment}, at {point} ({self._share})")
        self._wait_until_resumed(killed_at, dict(self._positions))

    def _kill_broker(self, kill: Kill) -> None:
        broker = self._kafka.broker(kill.broker)
        broker.kill()
        killed_at, before = self._clock(), dict(self._positions)
        self._display.killed(f"killed broker {broker.node} ({self._share})")
        self._wait_until(
            lambda: self._has_resumed(before) or self._clock() - killed_at > _OUTAGE,
            "delivery resumes without the broker",
        )
        broker.start(wait=False)
        self._display.event(f"restarted broker {broker.node} after {self._clock() - killed_at:.1f} s")
        self._wait_until_resumed(killed_at, before)

    def _kill_database(self) -> None:
        """Kills all processes of the server, and starts it again after an outage."""
        if self._database is None:
            raise ValueError("the sink of this run has no database to kill")
        self._database.kill()
        killed_at = self._clock()
        self._display.killed(f"killed the database ({self._share})")
        self._wait_until(lambda: self._clock() >= killed_at + _DATABASE_OUTAGE, "the database starts again")
        self._database.start()
        self._display.event(f"restarted the database after {self._clock() - killed_at:.1f} s")
        self._wait_until_resumed(killed_at, self._read_positions())

    def _wait_at_fault_point(self, kill: Kill, action: str) -> str:
        """Arms the fault point of this kill and waits until a process reaches it; returns the point's name."""
        sink, stateful = Sink(self._spec.sink.kind), self._spec.state is not None
        name = fault_point_name(kill, sink, self._spec.guarantee, stateful=stateful)
        hit, unarmed = self._points / f"{name}.hit", self._points / f".{name}"
        hit.unlink(missing_ok=True)
        unarmed.write_text(action)
        unarmed.rename(self._points / name)  # atomic: no process sees the file without its action
        self._wait_until(lambda: hit.exists() and hit.read_text() != action, f"a process reaches fault point {name}")
        return name

    def _wait_until_resumed(self, killed_at: float, before: Mapping[int, int]) -> None:
        self._wait_until(lambda: self._has_resumed(before), "delivery resumes")
        self._resume_seconds.append(self._clock() - killed_at)

    def _has_resumed(self, before: Mapping[int, int]) -> bool:
        return has_resumed(before, self._positions, self._ends)

    # -- the driver ----------------------------------------------------------------------------------------------------

    def _start_driver(self) -> Job:
        self._drivers += 1
        directory = self._directory / f"driver-{self._drivers}"
        return Job(self._spec, directory, self._watch, environment={POINTS: str(self._points)})

    def _restart_ended_driver(self) -> None:
        """Restarts a driver that has ended by itself. Raises AckwrightError if its exit code rules that out."""
        code = self._job.poll()
        if code is None:
            return
        cause = self._job.failure() or f"it gave no reason; its log is {self._job.log}"
        self._failures += 1
        if code not in _RESTARTED or self._failures > _MAX_FAILURES:
            raise AckwrightError(
                Reason.UNEXPECTED, f"the driver of {self._spec.guarantee} ended with exit code {code}: {cause}"
            )
        self._display.event(f"the driver ended ({cause}) and is restarted")
        self._job = self._start_driver()

    def _drain(self) -> None:
        self._job.drain()
        code = self._job.wait(_TIMEOUT)
        if code != ExitCode.OK:
            raise AckwrightError(
                Reason.UNEXPECTED, f"the driver did not drain: exit code {code}: {self._job.failure()}"
            )

    # -- positions -----------------------------------------------------------------------------------------------------

    @property
    def _processed(self) -> int:
        return sum(self._positions.values())

    @property
    def _share(self) -> str:
        return f"after {self._processed / self._total:.0%} of the records"

    def _wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Polls positions and driver until the condition holds. Raises AckwrightError after five minutes."""
        deadline = self._clock() + _TIMEOUT
        while not condition():
            if self._clock() > deadline:
                raise AckwrightError(
                    Reason.UNEXPECTED, f"timed out after {_TIMEOUT:.0f} s, waiting until {what}; see {self._job.log}"
                )
            time.sleep(_POLL_INTERVAL)
            self._restart_ended_driver()
            self._update_positions()

    def _read_positions(self) -> dict[int, int]:
        """Positions read after this call began: a task of the killed driver may have committed since the last read."""
        deadline = self._clock() + _TIMEOUT
        while not self._update_positions() and self._clock() < deadline:
            time.sleep(_POLL_INTERVAL)
        return dict(self._positions)

    def _update_positions(self) -> bool:
        """Reads the positions; False if their store does not answer."""
        stored = self._reader.read()
        if stored is None:
            return False
        self._positions.update(stored)
        rate = self._meter.add(self._clock(), self._processed)
        self._display.progress(self._processed, self._total, rate, self._starting())
        return True

    def _starting(self) -> StartPart | None:
        """What a driver does that has not delivered a batch yet."""
        if self._past_start is self._job:
            return None
        report = self._job.progress()
        if report is not None and report.batches:
            self._past_start = self._job
        # It serves no progress before its modules are loaded.
        return report.starting if report else StartPart.IMPORTS
