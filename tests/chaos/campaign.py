"""Random kills, one after the other, while records flow; then a count of lost and duplicated records.

The N kills of a guarantee are divided in fixed shares, because a start of Spark takes ten seconds and a process of
integration.support.lane_process takes one:

    1 in 20   a complete job with Spark: its process group killed, suspended and overtaken, or a Python worker killed
    1 in 20   a broker: killed and started again, or suspended and resumed
    the rest  a process that runs the job's own protocol without Spark: killed at a fault point, killed at a random
              moment, or stopped (SIGSTOP), overtaken by a younger driver, and continued

The seed decides which kill, where and when. The machine decides how the processes interleave, so a seed repeats the
plan of a campaign and not each of its steps.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.supervise import spark_settings
from ackwright_stream.jobspec import Guarantee
from integration.support.lane_process import LanePipeline, LaneProcess, lane_pipeline, watched
from integration.support.pipelines import Running, Verdict, feed, hanging, judge, read, running
from waiting import wait_until

PARTITIONS = 3
STEP = 20  # records of a lane in one transaction
PER_KILL = 60  # records fed into each partition before each kill
PER_SPARK_KILL = 300
TASK = ("task-start", "after-init", "after-read", "mid-produce", "after-offsets", "before-commit", "after-commit")
POINTS = {
    Guarantee.EXACTLY_ONCE: TASK,
    Guarantee.AT_MOST_ONCE: (*TASK, "claimed"),
    Guarantee.AT_LEAST_ONCE: (
        "task-start",
        "after-init",
        "after-read",
        "mid-produce",
        "before-advance",
        "after-advance",
    ),
}


class Kill:
    """What can be done to a pipeline."""

    AT_POINT = "process killed at a point"
    ANY_TIME = "process killed at any time"
    ZOMBIE = "process stopped, overtaken, continued"
    BROKER_KILLED = "broker killed and started again"
    BROKER_HUNG = "broker suspended and resumed"
    SPARK_DRIVER = "Spark driver's group killed"
    SPARK_ZOMBIE = "Spark driver suspended, overtaken, continued"
    SPARK_WORKER = "Spark's Python worker killed"


@dataclass(frozen=True)
class Outcome:
    """One guarantee's campaign. problems: all that must not be, in words; empty if the guarantee held."""

    guarantee: Guarantee
    seed: int
    sent: int
    kills: Counter[str]
    verdict: Verdict
    seconds: float
    problems: Sequence[str] = field(default=())


def plan(guarantee: Guarantee, kills: int, seed: int) -> list[str]:
    """Returns which kills in which order. Pure: it depends on the seed alone."""
    dice = random.Random(f"{seed}/{guarantee}")
    share = max(1, kills // 20) if kills >= 3 else 0
    spark = [
        Kill.SPARK_DRIVER,
        Kill.SPARK_ZOMBIE,
        *([] if guarantee is Guarantee.AT_LEAST_ONCE else [Kill.SPARK_WORKER]),
    ]
    kinds = dice.choices(spark, k=share) + dice.choices((Kill.BROKER_KILLED, Kill.BROKER_HUNG), k=share)
    kinds += dice.choices((Kill.AT_POINT, Kill.ANY_TIME, Kill.ZOMBIE), (4, 2, 2), k=kills - len(kinds))
    dice.shuffle(kinds)
    return kinds


class Campaign:
    """The kills of one guarantee on one pipeline. It kills brokers as well, so it needs a dedicated cluster."""

    def __init__(self, kafka: EmbeddedKafka, guarantee: Guarantee, seed: int, tell: Callable[[str], None]) -> None:
        self._kafka, self._guarantee, self._seed, self._tell = kafka, guarantee, seed, tell
        self._dice = random.Random(f"{seed}/{guarantee}/moments")
        self._problems: list[str] = []

    def run(self, directory: Path, kills: int) -> Outcome:
        began = time.monotonic()
        with (
            lane_pipeline(self._kafka.bootstrap_servers, directory, self._guarantee, PARTITIONS, count=0) as p,
            watched(p) as watcher,
        ):
            self._one(p, self._settle)
            done: Counter[str] = Counter()
            for number, kill in enumerate(plan(self._guarantee, kills, self._seed), 1):
                self._tell(f"{self._guarantee} {number}/{kills}: {kill}")
                self._feed(p, PER_SPARK_KILL if kill.startswith("Spark") else PER_KILL)
                self._one(p, self._action(kill))
                done[kill] += 1
            self._one(p, self._settle)
            self._kafka.wait_until_in_sync(120)
            verdict = judge(read(p.bootstrap, p.sink), PARTITIONS, p.count)
            self._judge(p, verdict, watcher.backwards)
        return Outcome(
            self._guarantee,
            self._seed,
            PARTITIONS * p.count,
            done,
            verdict,
            time.monotonic() - began,
            tuple(self._problems),
        )

    def _feed(self, p: LanePipeline, count: int) -> None:
        feed(p.bootstrap, p.source, PARTITIONS, p.count, count)
        p.count += count

    def _one(self, p: LanePipeline, action: Callable[[LanePipeline], None]) -> None:
        """Runs one action and kills every process that it leaves behind."""
        try:
            action(p)
        finally:
            for process in p.started:
                process.kill()

    def _action(self, kill: str) -> Callable[[LanePipeline], None]:
        return {
            Kill.AT_POINT: self._at_point,
            Kill.ANY_TIME: self._any_time,
            Kill.ZOMBIE: self._zombie,
            Kill.BROKER_KILLED: self._broker_killed,
            Kill.BROKER_HUNG: self._broker_hung,
            Kill.SPARK_DRIVER: self._spark_driver,
            Kill.SPARK_ZOMBIE: self._spark_zombie,
            Kill.SPARK_WORKER: self._spark_worker,
        }[kill]

    # ---- without Spark

    def _settle(self, p: LanePipeline) -> None:
        result = p.drive(step=STEP, again=True).result(180)
        if result.code:
            self._problems.append(f"a driver that should have delivered all ended with {result.code}: {result.message}")

    def _driver_at(self, p: LanePipeline, action: str) -> tuple[LaneProcess, str]:
        """Starts a driver; returns it with the fault point where it stops: during the takeover, or in a task."""
        point = self._dice.choice(POINTS[self._guarantee])
        lane = self._dice.randrange(PARTITIONS)
        in_a_task = self._guarantee is not Guarantee.AT_LEAST_ONCE and self._dice.random() < 0.7
        by_driver = point in ("before-advance", "after-advance")
        name = point if by_driver else f"{point}@{p.source}-{lane}"
        driver = p.drive(points={"taken": "hang"} if in_a_task else {name: action}, step=STEP, again=True)
        if in_a_task:
            driver.arrived("taken")
            driver.arm(name, action)
            driver.release("taken")
        wait_until(lambda: driver.at(name) or driver.ended, f"a driver at {name}")
        return driver, name

    def _at_point(self, p: LanePipeline) -> None:
        driver, name = self._driver_at(p, "kill")
        code = driver.result().code
        if code != 128 + signal.SIGKILL:
            self._problems.append(f"no process reached {name}: exit code {code}")

    def _any_time(self, p: LanePipeline) -> None:
        """Kills a driver between its first lane and its last transaction.

        A driver that ended before the kill does not count; then another one is killed.
        """
        while True:
            driver = p.drive(points={"task-start": "hang"}, step=STEP, again=True)
            driver.arrived("task-start")
            driver.release("task-start")
            try:
                driver.result(self._dice.uniform(0.0, 1.0))
            except subprocess.TimeoutExpired:
                driver.kill()
                return
            self._feed(p, PER_KILL)

    def _zombie(self, p: LanePipeline) -> None:
        zombie, name = self._driver_at(p, "hang")
        zombie.signal(signal.SIGSTOP)
        zombie.release(name)
        self._settle(p)
        zombie.signal(signal.SIGCONT)
        # Once superseded, its supervisor restarts it; it takes the pipeline over again and has nothing left to do.
        result = zombie.result(180)
        if result.code:
            self._problems.append(f"a zombie ended with {result.code}: {result.message}")

    def _broker_killed(self, p: LanePipeline) -> None:
        broker = self._dice.choice(self._kafka.brokers)
        driver = p.drive(step=STEP, again=True)
        broker.kill()
        broker.start(wait=False)
        self._expect(driver)
        broker.wait_until_ready()
        self._kafka.wait_until_in_sync(120)

    def _broker_hung(self, p: LanePipeline) -> None:
        broker = self._dice.choice(self._kafka.brokers)
        driver = p.drive(step=STEP, again=True, points={"task-start": "hang"})
        driver.arrived("task-start")
        broker.suspend()
        try:
            driver.release("task-start")
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.result(self._dice.uniform(1.0, 4.0))
        finally:
            broker.resume()
        self._expect(driver)
        self._kafka.wait_until_in_sync(120)

    def _expect(self, driver: LaneProcess) -> None:
        """Records a problem unless the driver ends by itself; the next driver then delivers the rest."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            driver.result(120)
            return
        self._problems.append("a driver got stuck when a broker failed")

    # ---- with Spark

    @contextlib.contextmanager
    def _job(self, p: LanePipeline) -> Iterator[Running]:
        home = p.directory / f"spark-{time.monotonic_ns()}"
        with running(replace(p.job, spark={**p.job.spark, **spark_settings(home)}), home) as job:
            job.until(lambda now: now["batchId"] >= 0, "the first batch")
            yield job

    def _spark_driver(self, p: LanePipeline) -> None:
        with self._job(p) as job:
            point = self._dice.choice(("batch-start", "batch-end", POINTS[self._guarantee][-1]))
            hit = job.arm(point)
            self._feed(p, PER_SPARK_KILL)
            job.arrived(hit)
            job.job.kill()

    def _spark_worker(self, p: LanePipeline) -> None:
        with self._job(p) as job:
            hit = job.arm(self._dice.choice(POINTS[self._guarantee]), "kill")
            self._feed(p, PER_SPARK_KILL)
            job.arrived(hit)
            job.until_position(PARTITIONS, p.count)

    def _spark_zombie(self, p: LanePipeline) -> None:
        with self._job(p) as job:
            hit = job.arm(point := self._dice.choice(("batch-start", "batch-end")))
            self._feed(p, PER_SPARK_KILL)
            job.arrived(hit)
            job.suspend()
            self._settle_in_large_steps(p)
            job.release(point)
            job.resume()
            self._feed(p, PER_KILL)  # there must be a batch in which it learns that it was overtaken
            code = job.job.wait(90)
            if code != 5:
                self._problems.append(f"the overtaken Spark driver ended with {code}: {job.job.failure()}")

    def _settle_in_large_steps(self, p: LanePipeline) -> None:
        result = p.drive(step=1000, again=True).result(180)
        if result.code:
            self._problems.append(f"the driver that overtakes ended with {result.code}: {result.message}")

    # ---- judgement

    def _judge(self, p: LanePipeline, verdict: Verdict, backwards: Sequence[str]) -> None:
        if verdict.lost and self._guarantee is not Guarantee.AT_MOST_ONCE:
            self._problems.append(f"{verdict.lost} records lost")
        if verdict.duplicated and self._guarantee is not Guarantee.AT_LEAST_ONCE:
            self._problems.append(f"{verdict.duplicated} records duplicated")
        if verdict.unexpected:
            self._problems.append(f"{verdict.unexpected} records that were never sent")
        if verdict.disordered and self._guarantee is Guarantee.EXACTLY_ONCE:  # a zombie writes late what it had claimed
            self._problems.append(f"{verdict.disordered} records out of order")
        if left := hanging(p.bootstrap, p.sink, p.source):
            self._problems.append(f"hanging transactions in {', '.join(left)}")
        if backwards:
            self._problems.append(f"positions moved backwards: {'; '.join(backwards)}")
        if p.positions() != dict.fromkeys(range(PARTITIONS), p.count):
            self._problems.append(f"positions {p.positions()}, the source ends at {p.count}")
