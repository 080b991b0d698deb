"""A complete job that runs as long as a soak, while its Python workers and its brokers are killed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from ackwright.local.supervise import spark_settings
from ackwright_stream.jobspec import ExitCode, Guarantee
from chaos.account import Counts
from chaos.kills import until_delivered
from chaos.pipeline import Pipeline, open_pipeline
from chaos.plan import Round
from integration.support.pipelines import Running, running
from integration.support.processes import program
from waiting import WAIT

PARTITIONS = 8
RECORDS = 20  # fed into each partition each second
KILL_EVERY_S = 10.0


class Resident:
    """The job, its pipeline and the thread that feeds it. A job that ends is started again, like by its supervisor."""

    def __init__(
        self, bootstrap: str, guarantee: Guarantee, directory: Path, dice: random.Random, tell: Callable[[str], None]
    ) -> None:
        self._context = contextlib.ExitStack()
        self._pipeline: Pipeline = self._context.enter_context(
            open_pipeline(bootstrap, directory, guarantee, Round(0, 1, PARTITIONS, ()))
        )
        self._dice, self._tell = dice, tell
        self._job: Running | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="resident", daemon=True)
        self._problems: list[str] = []
        self.kills = 0
        self.starts = 0

    def __enter__(self) -> Resident:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join(WAIT)
        self._context.close()

    def processes(self) -> dict[str, int]:
        """The ids of the job's processes that are not killed on purpose, by role."""
        return {} if self._job is None else roles(self._job.job.pid)

    def finish(self) -> tuple[Counts, list[str]]:
        """Lets the job deliver what is left, ends it, and judges its output."""
        self._end.set()
        self._thread.join(2 * WAIT)
        counts, problems = self._pipeline.judge()
        return counts, [f"the job of the soak: {problem}" for problem in (*self._problems, *problems)]

    def _run(self) -> None:
        try:
            while not self._run_once():
                pass
        except Exception as e:  # of this thread; the soak reports it
            self._problems.append(f"{type(e).__name__}: {e}")

    def _run_once(self) -> bool:
        """Runs the job until the end of the soak and returns True, or until it ends by itself and has to start again.

        Raises AssertionError if it ends in a way in which its supervisor would not start it again.
        """
        p = self._pipeline
        home = p.directory / f"resident-{self.starts}"
        with running(replace(p.job, spark={**p.job.spark, **spark_settings(home)}), home) as self._job:
            self.starts += 1
            if self._feed_and_kill(self._job):
                until_delivered(p, self._job)
                self._job.job.drain()
                self._job.job.wait(WAIT)
                return True
            code, failure = self._job.job.poll(), self._job.job.failure()
            self._tell(f"the job of the soak ended with {code}: {failure}")
            assert code in (ExitCode.FAILED, ExitCode.UNAVAILABLE), f"ended with {code}: {failure}"
        return False

    def _feed_and_kill(self, job: Running) -> bool:
        """Returns True at the end of the soak, and False if the job ends before."""
        due = time.monotonic() + KILL_EVERY_S
        while not self._end.wait(1.0):
            if job.job.poll() is not None:
                return False
            self._pipeline.feed(RECORDS)
            if time.monotonic() > due:
                due += KILL_EVERY_S
                self._kill_a_worker(job.job.pid)
        return True

    def _kill_a_worker(self, driver: int) -> None:
        daemon = roles(driver).get("worker daemon")
        workers = list(children(daemon)) if daemon else []
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._dice.choice(workers), signal.SIGKILL)
                self.kills += 1


def roles(driver: int) -> dict[str, int]:
    """The driver, its JVM, and the daemon that forks Python workers, as far as they run."""
    parts = {"driver": driver}
    for jvm in (pid for pid in children(driver) if program(pid) == "java"):
        parts["JVM"] = jvm
        for pid in children(jvm):
            if program(pid).startswith("python"):
                parts["worker daemon"] = pid
    return parts


def children(parent: int) -> Iterator[int]:
    """Yields the processes that this one has started."""
    for pid, of in _parents().items():
        if of == parent:
            yield pid


def _parents() -> Mapping[int, int]:
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    return parents
