"""One pipeline over several lives of its driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ackwright_stream.jobspec import ExitCode, JobSpec
from integration.support.pipelines import Running, feed, running
from waiting import WAIT


@dataclass
class DriverLives:
    """A pipeline, what its source was fed, and its drivers, which run one after the other."""

    servers: str
    directory: Path
    spec: JobSpec
    partitions: int  # of the source
    fed: int = field(default=0, init=False)  # records of each partition
    lives: int = field(default=0, init=False)
    environment: dict[str, str] = field(default_factory=dict, init=False)  # further variables of its drivers

    @property
    def source(self) -> str:
        return self.spec.source.topics[0]

    def feed(self, count: int = 500) -> None:
        """Sends so many further records to each partition."""
        feed(self.servers, self.source, self.partitions, self.fed, count)
        self.fed += count

    @contextmanager
    def life(self) -> Iterator[Running]:
        """The next driver, in a separate directory."""
        self.lives += 1
        with running(self.spec, self.directory / str(self.lives), self.environment) as job:
            yield job

    def caught_up(self, job: Running) -> None:
        """Waits until the driver has reported every record as delivered."""
        job.until_position(self.partitions, self.fed)

    def drain(self, job: Running) -> None:
        """Ends the driver by SIGTERM."""
        job.job.drain()
        assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()

    def kill_tasks(self, job: Running, *points: str) -> None:
        """A task is killed at each point, with further records; Spark runs it again."""
        for point in points:
            hit = job.arm(point, "kill")
            self.feed()
            job.arrived(hit)
            self.caught_up(job)

    def kill_driver(self, job: Running, point: str) -> None:
        """The driver is killed at the point, in a batch of further records."""
        hit = job.arm(point, "kill")
        self.feed()
        job.arrived(hit)
        job.job.wait(WAIT)

    def complete_after_kill(self, point: str) -> None:
        """A bounded run of which a process is killed at a point, and the run that completes it if that is the driver.

        A driver one of whose tasks was killed completes the run itself.
        """
        with self.life() as job:
            job.arrived(job.arm(point, "kill"))
            if job.job.wait(WAIT) == ExitCode.OK:
                return
        with self.life() as job:
            assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()

    @contextmanager
    def overtaken(self, point: str, lane: str | None = None) -> Iterator[Running]:
        """A driver is suspended at a point, and the next one catches up; the first then ends, as superseded.

        Yields the next one.
        """
        with self.life() as zombie:
            self.caught_up(zombie)
            hit = zombie.arm(point, lane=lane)
            self.feed()
            zombie.arrived(hit)
            zombie.suspend()
            with self.life() as driver:
                self.caught_up(driver)
                zombie.release(point, lane=lane)
                zombie.resume()
                assert zombie.job.wait(WAIT) == ExitCode.SUPERSEDED, zombie.job.failure()
                assert "StackOverflowError" not in zombie.job.log.read_text(errors="replace")
                yield driver
