"""Kills of drivers, workers and brokers, while records flow."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import spark_settings
from ackwright_stream.jobspec import ExitCode, Guarantee
from chaos.pipeline import Pipeline
from chaos.plan import WORKERS, Kill, Storm, kills_of
from integration.support.lane_pipeline import LaneProcess
from integration.support.pipelines import Running, running
from waiting import WAIT, wait_until

# Points in a task; under at-least-once, in the driver between a batch's first row and its advance.
TASK = ("task-start", "after-init", "after-read", "mid-produce", "after-offsets", "before-commit", "after-commit")
IN_TASK = {
    Guarantee.EXACTLY_ONCE: TASK,
    Guarantee.AT_MOST_ONCE: (*TASK, "claimed"),
    Guarantee.AT_LEAST_ONCE: ("mid-produce", "before-advance", "after-advance"),
}
# Points that a driver passes after its start, those of its takeover included.
TAKEOVER = ("task-start", "after-offsets", "before-commit", "after-commit")
POINTS = {guarantee: tuple(sorted({*TAKEOVER, *points})) for guarantee, points in IN_TASK.items()}
LONGEST_S = 1.5  # how long a process lives that is killed at any time, from its first request on


class Kills:
    """The kills of one round. feed_count: records for each partition before a kill."""

    def __init__(self, kafka: EmbeddedKafka, p: Pipeline, dice: random.Random, problems: list[str]) -> None:
        self._kafka, self._p, self._dice, self._problems = kafka, p, dice, problems
        self.feed_count = 60 if p.lane_count < 30 else 10
        self._guarantee = p.job.guarantee

    def make(self, kill: Kill | Storm) -> Counter[str]:
        """Makes the kill; returns what it killed."""
        self._p.feed(self.feed_count)
        if isinstance(kill, Storm):
            return self._storm(kill.kills)
        if kill in (Kill.AT_POINT, Kill.ANY_TIME):
            return self._storm((kill,))
        {
            Kill.ZOMBIE: self._zombie,
            Kill.BROKER_KILLED: self._broker_killed,
            Kill.BROKER_HUNG: self._broker_hung,
            Kill.SPARK_DRIVER: self._spark_driver,
            Kill.SPARK_ZOMBIE: self._spark_zombie,
            Kill.SPARK_WORKER: self._spark_worker,
        }[kill]()
        return Counter({kill.value: kills_of(kill)})

    # ---- without Spark

    def settle(self) -> None:
        """Runs a driver that delivers everything; records a problem unless it succeeds."""
        result = self._p.settle()
        if result.code:
            self._problems.append(f"a driver that should have delivered all ended with {result.code}: {result.message}")

    def point(self) -> str:
        """The name of a fault point that a driver passes: in the takeover, or in the task of one lane."""
        point = self._dice.choice(POINTS[self._guarantee])
        if self._guarantee is Guarantee.AT_LEAST_ONCE or self._dice.random() < 0.3:
            return point
        return f"{point}@{self.lane()}"

    def lane(self) -> str:
        """A lane, as fault points name it."""
        topic = self._dice.choice(self._p.topics)
        return f"{topic.name}-{self._dice.randrange(topic.partitions)}"

    def _storm(self, kills: tuple[Kill, ...]) -> Counter[str]:
        """Starts a driver for each kill, all at the same time; they take the pipeline from one another.

        A driver that does not reach its point in time, because another one has fenced it, is killed where it is. One
        that ends before is started again with more records.
        """
        killed: Counter[str] = Counter()
        points = [self.point() if kill is Kill.AT_POINT else None for kill in kills]
        drivers = [self._p.drive({"started": "pass", **({point: "kill"} if point else {})}) for point in points]
        wait_until(lambda: all(d.ended or d.at("started") for d in drivers), "the drivers have started")
        ends = [time.monotonic() + self._dice.uniform(0.0, LONGEST_S) for _ in drivers]
        while not all(d.ended for d in drivers):
            for point, driver, end in zip(points, drivers, ends, strict=True):
                # A process that is to die at a point gets the longest time to reach it.
                if time.monotonic() > end + (LONGEST_S if point else 0):
                    driver.kill()
            time.sleep(0.01)
        for point, driver in zip(points, drivers, strict=True):
            result = driver.result()
            if result.code == 128 + signal.SIGKILL:
                killed[Kill.AT_POINT if point and driver.at(point) else Kill.ANY_TIME] += 1
            elif result.code:
                self._problems.append(f"a driver in a storm ended with {result.code}: {result.message}")
        return killed

    def held(self, point: str) -> LaneProcess:
        """A driver that waits at the point. It has the pipeline unless the point is before the end of the takeover."""
        driver = self._p.drive({point: "hang"})
        driver.arrived(point)
        return driver

    def held_in_task(self, points: tuple[str, ...]) -> tuple[LaneProcess, str]:
        """A driver that has taken the pipeline and waits at one of the points, and the point."""
        driver = self.held("taken")
        point = self._dice.choice(points)
        driver.arm(point, "hang")
        driver.release("taken")
        driver.arrived(point)
        return driver, point

    def _zombie(self) -> None:
        zombie, point = self.held_in_task(IN_TASK[self._guarantee])
        zombie.signal(signal.SIGSTOP)
        zombie.release(point)
        self.settle()
        zombie.signal(signal.SIGCONT)
        # Once superseded, its supervisor restarts it; it takes the pipeline over again and has nothing left to do.
        self.expect_end(zombie, "a zombie")

    def expect_end(self, driver: LaneProcess, what: str) -> None:
        """Records a problem unless the driver ends by itself, having delivered everything."""
        try:
            result = driver.result(180)
        except subprocess.TimeoutExpired:
            self._problems.append(f"{what} did not end within 180 s")
            return
        # A supervisor starts it again after other failures: the brokers are not there, the topics are changing.
        if result.code not in (ExitCode.OK, ExitCode.UNAVAILABLE, ExitCode.FAILED):
            self._problems.append(f"{what} ended with {result.code}: {result.message}")

    # ---- brokers

    def _broker_killed(self) -> None:
        broker = self._dice.choice(self._kafka.brokers)
        driver = self._p.drive()
        broker.kill()
        broker.start(wait=False)
        self.expect_end(driver, "a driver during a broker's restart")
        broker.wait_until_ready()
        self._kafka.wait_until_in_sync(120)

    def _broker_hung(self) -> None:
        broker = self._dice.choice(self._kafka.brokers)
        driver = self.held("task-start")
        broker.suspend()
        try:
            driver.release("task-start")
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.result(self._dice.uniform(1.0, 4.0))
        finally:
            broker.resume()
        self.expect_end(driver, "a driver while a broker hung")
        self._kafka.wait_until_in_sync(120)

    # ---- with Spark

    @contextlib.contextmanager
    def _job(self) -> Iterator[Running]:
        home = self._p.directory / f"spark-{time.monotonic_ns()}"
        job = replace(self._p.job, spark={**self._p.job.spark, **spark_settings(home)})
        with running(job, home) as started:
            started.until(lambda now: now["batchId"] >= 0, "the first batch")
            yield started

    def _spark_driver(self) -> None:
        with self._job() as job:
            hit = job.arm(self._dice.choice(("batch-start", "batch-end", IN_TASK[self._guarantee][-1])))
            self._p.feed(self.feed_count)
            job.arrived(hit)
            job.job.kill()

    def _spark_worker(self) -> None:
        """Kills Python workers at three points, one after the other: a start of Spark takes longer than all of them."""
        points = self._dice.sample(IN_TASK[self._guarantee], WORKERS)
        with self._job() as job:
            for point in points:
                hit = job.arm(point, "kill")
                self._p.feed(self.feed_count)
                job.arrived(hit)
                until_delivered(self._p, job)

    def _spark_zombie(self) -> None:
        with self._job() as job:
            hit = job.arm(point := self._dice.choice(("batch-start", "batch-end")))
            self._p.feed(self.feed_count)
            job.arrived(hit)
            job.suspend()
            self.settle()
            job.release(point)
            job.resume()
            self._p.feed(self.feed_count)  # there must be a batch in which it learns that it was overtaken
            code = job.job.wait(WAIT)
            if code != ExitCode.SUPERSEDED:
                self._problems.append(f"the overtaken Spark driver ended with {code}: {job.job.failure()}")


def until_delivered(p: Pipeline, job: Running) -> None:
    """Waits until the job's positions are at the ends."""
    ends = {t.name: {x.partition: p.account.lanes[x].records for x in t.lanes} for t in p.topics}

    def at_the_ends(now: Mapping[str, Any]) -> bool:
        return {t: {int(n): at for n, at in lanes.items()} for t, lanes in now["positions"].items()} == ends

    job.until(at_the_ends, "positions at the ends", WAIT)
