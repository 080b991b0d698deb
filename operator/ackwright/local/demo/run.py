"""One run of the demo: a pipeline from the first record to the last, while processes are killed. Every kill is a SIGKILL of a real process.

The job is the one that `ackwright run` starts, and brought back by nothing but being started again. What is delivered is looked up in
Kafka, as the group's offsets: a driver that has just been killed cannot be asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ackwright.errors import AckwrightError
from ackwright.local.demo.failures import Strike, Target, point
from ackwright.local.demo.results import Delivered, Meter, resumed
from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import Job
from ackwright.local.watch import Watch
from ackwright_stream.jobspec import ExitCode, JobSpec, Reason

POINTS = "ACKWRIGHT_POINTS"  # ackwright_stream.fault_points.VARIABLE; a test compares the two
_TICK = 0.05  # seconds between looks
_PATIENCE = 300.0  # seconds; a start that takes 13 on an idle machine took 115 on two cores with a load of 15
_LINGER = 0.5  # seconds from a process's arrival at a point to the kill: what other tasks have under way goes on, as it would in a crash
_OUTAGE = 8.0  # seconds after which a broker comes back even if delivery has not resumed without it; its session is over after 6
_AGAIN = frozenset(
    {ExitCode.FAILED, ExitCode.UNAVAILABLE}
)  # exit codes after which a driver is started again, as the operator would
_MOST_FAILURES = 3


class Display(Protocol):
    """Told what happens."""

    def progress(self, done: int, total: int, rate: float) -> None: ...
    def event(self, text: str) -> None: ...
    def killed(self, text: str) -> None: ...


class Run:
    """One pipeline under failures. ends: where each partition of the source ends; nothing is written to it meanwhile.

    directory: gets one directory for each driver."""

    def __init__(
        self,
        kafka: EmbeddedKafka,
        job: JobSpec,
        ends: Mapping[int, int],
        *,
        directory: Path,
        watch: Watch,
        display: Display,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kafka, self._spec, self._ends, self._directory = kafka, job, ends, directory
        self._watch, self._display, self._clock = watch, display, clock
        self._points = directory / "points"
        self._points.mkdir(parents=True, exist_ok=True)
        # Not the admin client: librdkafka's can end the process when a broker is killed under its request. read_uncommitted: it only looks.
        pinned = {
            "group.id": job.group,
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "log_level": 0,
        }
        self._reader = Consumer({"bootstrap.servers": job.cluster.bootstrap_servers, **pinned})
        self._total = sum(ends.values())
        self._positions: dict[int, int] = {}
        self._meter = Meter()
        self._drivers = 0
        self._failures = 0
        self._resume_seconds: list[float] = []
        self._job = self._driver()

    def run(self, strikes: Sequence[Strike]) -> Delivered:
        """Returns when everything is delivered and the driver has ended. Raises AckwrightError if it does not come to that."""
        try:
            self._until(lambda: self._passed > 0, "the first records are delivered")
            began, before = self._clock(), self._passed
            for strike in strikes:
                self._until(lambda at=strike.at: self._passed >= at * self._total, "records are delivered")  # type: ignore[misc]
                self._strike(strike)
            self._until(lambda: self._passed >= self._total, "all records are delivered")
            working = self._clock() - began - sum(self._resume_seconds)
            self._drain()
        finally:
            self._job.kill()
        rate = (self._total - before) / working if working > 0 else 0.0
        return Delivered(len(strikes), rate, tuple(self._resume_seconds))

    # -- failures --------------------------------------------------------------------------------------------------------------

    def _strike(self, strike: Strike) -> None:
        match strike.target:
            case Target.DRIVER:
                self._kill_driver(strike)
            case Target.WORKER:
                self._kill_worker(strike)
            case Target.BROKER:
                self._kill_broker(strike)
        self._display.event(f"delivery has resumed on every partition after {self._resume_seconds[-1]:.1f} s")

    def _kill_driver(self, strike: Strike) -> None:
        """Python, the JVM and with it Spark's executor; Python workers end when they find their JVM gone, as on a machine of its own."""
        name = self._meet(strike, "hang")
        lingered = self._clock() + _LINGER
        self._until(lambda: self._clock() >= lingered, "it is time to kill")
        self._job.kill()
        at = self._clock()
        self._display.killed(f"killed the driver {strike.moment}, at {name} ({self._share})")
        self._job = self._driver()
        self._resume(at, self._fresh())

    def _kill_worker(self, strike: Strike) -> None:
        name = self._meet(strike, "kill")
        at = self._clock()
        self._display.killed(f"killed a Python worker {strike.moment}, at {name} ({self._share})")
        self._resume(at, dict(self._positions))

    def _kill_broker(self, strike: Strike) -> None:
        broker = self._kafka.broker(strike.broker)
        broker.kill()
        at, before = self._clock(), dict(self._positions)
        self._display.killed(f"killed broker {broker.node} ({self._share})")
        self._until(
            lambda: self._has_resumed(before) or self._clock() - at > _OUTAGE, "delivery resumes without the broker"
        )
        broker.start(wait=False)
        self._display.event(f"started broker {broker.node} again after {self._clock() - at:.1f} s")
        self._resume(at, before)

    def _meet(self, strike: Strike, action: str) -> str:
        """Arms the point of this failure, and waits until a process has come by."""
        name = point(strike, self._spec.guarantee)
        hit, fresh = self._points / f"{name}.hit", self._points / f".{name}"
        hit.unlink(missing_ok=True)
        fresh.write_text(action)
        fresh.rename(self._points / name)  # armed at once with its action
        self._until(lambda: hit.exists() and hit.read_text() != action, f"a process comes by the point {name}")
        return name

    def _resume(self, at: float, before: Mapping[int, int]) -> None:
        self._until(lambda: self._has_resumed(before), "delivery resumes")
        self._resume_seconds.append(self._clock() - at)

    def _has_resumed(self, before: Mapping[int, int]) -> bool:
        return resumed(before, self._positions, self._ends)

    # -- the driver ------------------------------------------------------------------------------------------------------------

    def _driver(self) -> Job:
        self._drivers += 1
        place = self._directory / f"driver-{self._drivers}"
        return Job(self._spec, place, self._watch, environment={POINTS: str(self._points)})

    def _keep_alive(self) -> None:
        """A driver that ended by itself is started again, unless it said that this cannot help."""
        code = self._job.poll()
        if code is None:
            return
        why = self._job.failure() or f"no reason given; its log is {self._job.log}"
        self._failures += 1
        if code not in _AGAIN or self._failures > _MOST_FAILURES:
            raise AckwrightError(
                Reason.UNEXPECTED, f"the driver of {self._spec.guarantee} ended with exit code {code}: {why}"
            )
        self._display.event(f"the driver ended ({why}) and is started again")
        self._job = self._driver()

    def _drain(self) -> None:
        self._job.drain()
        code = self._job.wait(_PATIENCE)
        if code != ExitCode.OK:
            raise AckwrightError(
                Reason.UNEXPECTED, f"the driver did not drain: exit code {code}: {self._job.failure()}"
            )

    # -- positions -------------------------------------------------------------------------------------------------------------

    @property
    def _passed(self) -> int:
        return sum(self._positions.values())

    @property
    def _share(self) -> str:
        return f"at {self._passed / self._total:.0%} of the records"

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Looks at everything until the condition holds. Raises AckwrightError if it does not in time."""
        deadline = self._clock() + _PATIENCE
        while not condition():
            if self._clock() > deadline:
                raise AckwrightError(
                    Reason.UNEXPECTED, f"waited {_PATIENCE:.0f} s in vain until {what}; see {self._job.log}"
                )
            time.sleep(_TICK)
            self._keep_alive()
            self._look()

    def _fresh(self) -> dict[int, int]:
        """Positions as they are after this call began; a task of the killed driver may have moved some."""
        deadline = self._clock() + _PATIENCE
        while not self._look() and self._clock() < deadline:
            time.sleep(_TICK)
        return dict(self._positions)

    def _look(self) -> bool:
        """Takes the positions from Kafka; False if there was no answer, as while a coordinator moves."""
        asked = [TopicPartition(self._spec.source.topics[0], p) for p in self._ends]
        try:
            found = self._reader.committed(asked, timeout=2)
        except KafkaException:
            return False
        self._positions.update({p.partition: p.offset for p in found if p.error is None and p.offset >= 0})
        self._display.progress(self._passed, self._total, self._meter.add(self._clock(), self._passed))
        return True
