"""Autoscaling with real executors: their number follows the lag, and every record is delivered once and in order.

docs/protocol.md#transaction
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import KafkaSink
from integration.support.driver_lives import DriverLives
from integration.support.local_cluster import EXECUTORS, clustered_job, executors, spark_home
from integration.support.pipelines import (
    Running,
    Verdict,
    Watcher,
    assert_nothing_hangs,
    create_topics,
    document,
    judge,
    read,
)
from waiting import wait_until

PARTITIONS = 6
SMALLEST = 1
BACKLOG = 2000  # records of each partition, with batches of 600 offsets altogether: 20 batches


@dataclass
class Pipeline(DriverLives):
    watcher: Watcher

    def until_executors(self, job: Running, number: int) -> None:
        """Waits until so many executors are requested and run."""
        job.until(lambda p: (p["executorsRequested"], p["executors"]) == (number, number), f"{number} executors")

    def assert_exactly_once(self) -> None:
        """After a drain."""
        sink = self.spec.sink_of(KafkaSink).topic or ""
        assert_nothing_hangs(self.servers, sink, self.source)
        assert self.watcher.backwards == []
        assert judge(read(self.servers, sink), PARTITIONS, self.fed) == Verdict(0, 0, 0, 0)


@contextmanager
def pipeline(kafka: EmbeddedKafka, directory: Path) -> Iterator[Pipeline]:
    servers, name = kafka.bootstrap_servers, f"scaled-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=PARTITIONS)
    executor = {"instances": SMALLEST, "memory": "512m", "autoscaling": {"maxInstances": EXECUTORS}}
    declared = document(servers, name, "exactly-once", source, sink, spark={"executor": executor})
    declared["spec"]["source"]["maxOffsetsPerTrigger"] = 600
    job = clustered_job(declared, directory, drain_target_ms=1000, window_ms=1000, cool_down_ms=2000)
    with Watcher(servers, job.group, source, sink, PARTITIONS) as watcher:
        created = Pipeline(servers, directory, job, PARTITIONS, watcher)
        created.environment |= spark_home(directory)
        created.feed()
        yield created


def alone(processes: list[int]) -> list[int]:
    """The list, if it has one process; else an empty one."""
    return processes if len(processes) == SMALLEST else []


def test_executors_come_with_a_lag_and_go_after_it(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with pipeline(kafka, tmp_path) as p:
        with p.life() as job:
            p.caught_up(job)
            p.until_executors(job, SMALLEST)
            p.feed(BACKLOG)
            p.until_executors(job, EXECUTORS)
            p.caught_up(job)
            p.until_executors(job, SMALLEST)
            report = job.progress()
            assert (report["restarts"], report["skippedLanes"]) == (0, 0), "no task ran twice"
            [last] = wait_until(lambda: alone(executors(tmp_path)), "the others have ended")
            os.kill(last, signal.SIGKILL)
            p.feed()
            p.caught_up(job)  # by the executor that replaces it: one is still requested
            p.drain(job)
        p.assert_exactly_once()


@pytest.mark.parametrize("point", ["executors-before", "executors-after"])
def test_a_driver_killed_at_a_change_of_its_executors_exactly_once(
    kafka: EmbeddedKafka, tmp_path: Path, point: str
) -> None:
    with pipeline(kafka, tmp_path) as p:
        with p.life() as job:  # it begins with all executors, and releases some between its first batches
            hit = job.arm(point, "kill")
            p.feed(BACKLOG)
            job.arrived(hit)
            job.job.wait(60)
        with p.life() as job:
            p.caught_up(job)
            p.until_executors(job, SMALLEST)
            hit = job.arm(point, "kill")
            p.feed(BACKLOG)  # it requests more
            job.arrived(hit)
            job.job.wait(60)
        with p.life() as job:
            p.caught_up(job)
            p.drain(job)
        p.assert_exactly_once()
