"""Complete jobs with Spark that are killed: driver, Python workers, checkpoint.

Failures of a single task are in test_lane_kills.py. Only a driver has several lanes, Spark's commit log, and restarts.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, KafkaSink
from integration.support.driver_lives import DriverLives
from integration.support.pipelines import (
    Verdict,
    Watcher,
    assert_nothing_hangs,
    create_topics,
    document,
    job_of,
    judge,
    positions_of,
    read,
)
from waiting import WAIT, wait_until

PARTITIONS = 3
KILLED = 137


@dataclass
class Pipeline(DriverLives):
    """One pipeline over several runs of its driver."""

    watcher: Watcher

    @property
    def sink(self) -> str:
        return str(self.spec.sink_of(KafkaSink).topic)

    def positions(self) -> dict[int, int]:
        return positions_of(self.servers, self.spec.group, self.source, PARTITIONS)

    def killed_at(self, point: str, lane: int | None = None) -> None:
        """A run that ends by SIGKILL to the process group, at the fault point (of one lane)."""
        with self.life() as job:
            job.until_position(PARTITIONS, self.fed)
            hit = job.arm(point, lane=None if lane is None else f"{self.source}-{lane}")
            self.feed()
            job.arrived(hit)
            job.job.kill()
            assert job.job.poll() == KILLED

    def kill_in_half_a_batch(self) -> None:
        """A run that ends by SIGKILL when a task of a batch has committed, and lane 0's is in its transaction."""
        with self.life() as job:
            job.until_position(PARTITIONS, self.fed)
            before = job.arm("batch-end")
            self.feed(1)
            job.arrived(before)
            # What comes while the driver is still in the batch before is all in the next one, of every lane.
            hit = job.arm("before-commit", lane=f"{self.source}-0")
            self.feed()
            job.release("batch-end")
            job.arrived(hit)
            wait_until(self.only_one_task_is_through, "the other task of the batch is through")
            job.job.kill()
            assert job.job.poll() == KILLED

    def only_one_task_is_through(self) -> bool:
        at = self.positions()
        return self.fed in at.values() and at[0] < self.fed

    def drained(self) -> None:
        """A run that delivers every record and ends by SIGTERM."""
        with self.life() as job:
            job.until_position(PARTITIONS, self.fed)
            job.job.drain()
            assert job.job.wait(WAIT) == ExitCode.OK

    def verdict(self) -> Verdict:
        """After a drain: positions are at the source's ends, no transaction hangs, no position moved backwards."""
        assert self.positions() == dict.fromkeys(range(PARTITIONS), self.fed)
        assert_nothing_hangs(self.servers, self.sink, self.source)
        assert self.watcher.backwards == []
        return judge(read(self.servers, self.sink), PARTITIONS, self.fed)

    def assert_exactly_once(self) -> None:
        assert self.verdict() == Verdict(0, 0, 0, 0)
        wait_until(lambda: len(self.watcher.records) >= PARTITIONS * self.fed, "the concurrent reader has every record")
        assert judge(self.watcher.records, PARTITIONS, self.fed) == Verdict(0, 0, 0, 0)


@contextmanager
def pipeline(
    kafka: EmbeddedKafka, directory: Path, guarantee: str, checkpoint: Path | None = None
) -> Iterator[Pipeline]:
    servers, name = kafka.bootstrap_servers, f"driver-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(servers, source, sink, partitions=PARTITIONS)
    spec = job_of(document(servers, name, guarantee, source, sink), directory)
    spec = replace(spec, checkpoint=str(checkpoint) if checkpoint else None)
    with Watcher(servers, spec.group, source, sink, PARTITIONS) as watcher:
        created = Pipeline(servers, directory, spec, PARTITIONS, watcher)
        created.feed()
        yield created


@pytest.mark.parametrize("some_lanes", [False, True], ids=["before-sparks-log", "after-some-lanes"])
def test_driver_killed_before_sparks_commit_log_and_after_some_lanes_exactly_once(
    kafka: EmbeddedKafka, tmp_path: Path, *, some_lanes: bool
) -> None:
    with pipeline(kafka, tmp_path, "exactly-once") as p:
        if some_lanes:
            p.kill_in_half_a_batch()
        else:
            p.killed_at("batch-end")  # every lane of the batch committed, Spark's log not written
            assert max(p.positions().values()) > 500  # a batch may begin when the records of only some lanes have come
        p.drained()
        p.assert_exactly_once()


@pytest.mark.parametrize("point", ["before-advance", "after-advance"])
def test_driver_killed_before_and_after_its_advance_at_least_once(
    kafka: EmbeddedKafka, tmp_path: Path, point: str
) -> None:
    with pipeline(kafka, tmp_path, "at-least-once") as p:
        p.killed_at(point)
        only_written = point == "before-advance"
        assert (set(p.positions().values()) == {500}) is only_written
        p.drained()
        verdict = p.verdict()
        assert (verdict.lost, verdict.unexpected) == (0, 0)
        assert (verdict.duplicated > 0) is only_written  # delivered again


def test_driver_killed_after_a_claim_at_most_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with pipeline(kafka, tmp_path, "at-most-once") as p:
        p.killed_at("claimed", lane=0)
        p.drained()
        verdict = p.verdict()
        assert (verdict.duplicated, verdict.unexpected, verdict.disordered) == (0, 0, 0)
        assert verdict.lost > 0  # claimed, not yet written


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_python_worker_killed_then_sigterm_drains(kafka: EmbeddedKafka, tmp_path: Path, guarantee: str) -> None:
    """After SIGTERM in the middle of the input the exit code is 0, and positions and sink agree."""
    with pipeline(kafka, tmp_path, guarantee) as p:
        with p.life() as job:
            job.until_position(PARTITIONS, p.fed)
            if guarantee != "at-least-once":  # whose write is done by the JVM: no Python worker takes part
                hit = job.arm("mid-produce", "kill")
                p.feed(5000)
                job.arrived(hit)
                job.until_position(PARTITIONS, p.fed)
                assert job.job.poll() is None
            p.feed(20_000)
            job.job.drain()
            assert job.job.wait(WAIT) == ExitCode.OK, job.job.failure()
        reached = p.positions()
        records = read(p.servers, p.sink)
        assert_nothing_hangs(p.servers, p.sink, p.source)
        delivered = {r.value for r in records}
        beyond = [r.value for r in records if int((r.value or b"").split(b":")[1]) >= reached[r.partition]]
        missing = sum(f"{q}:{n}".encode() not in delivered for q, until in reached.items() for n in range(until))
        assert beyond == [], "written, but the position does not say so: a drain leaves nothing half done"
        if guarantee == "at-most-once":
            assert 0 < missing <= 5000, "the killed worker's claim"
        else:
            assert missing == 0
        assert len(delivered) == len(records)
        assert p.watcher.backwards == []


def test_checkpoint_lost_while_running_and_between_runs_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pipeline(kafka, tmp_path, "exactly-once", checkpoint=checkpoint) as p:
        with p.life() as job:
            job.until_position(PARTITIONS, p.fed)
            assert any(checkpoint.rglob("offsets"))
            checkpoint.rename(tmp_path / "lost")  # at once: the job may be writing a file of it
            p.feed(3000)
            job.until_position(PARTITIONS, p.fed)  # by a restart from the positions, inside of the job
            job.job.kill()
        shutil.rmtree(checkpoint, ignore_errors=True)
        p.feed()
        p.drained()
        p.assert_exactly_once()
