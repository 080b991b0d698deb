"""Zombies: tasks and drivers that were stopped, overtaken, and then continue (a paused machine, a lost node)."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.jobspec import ExitCode, JobSpec, KafkaSink
from integration.support.lane_pipeline import assert_exactly_once, lane_pipeline, watched
from integration.support.pipelines import (
    Verdict,
    Watcher,
    assert_nothing_hangs,
    create_topics,
    document,
    feed,
    job_of,
    judge,
    positions_of,
    read,
    running,
)
from integration.support.zombies import (
    AT_MOST_ONCE_POINTS,
    assert_zombie_driver_does_not_advance,
    assert_zombie_tasks_claim_nothing,
)
from waiting import WAIT, wait_until

# Where a task is stopped, and how it may end when it continues after a younger driver has taken over.
ENDS: Mapping[str, set[str | None]] = {
    "task-start": {"Superseded"},  # its slot is free; the position that it reads is a younger driver's
    "after-init": {"Superseded"},
    "after-read": {"PositionConflict"},
    "mid-produce": {"PositionConflict"},
    "after-offsets": {"PositionConflict"},
    "before-commit": {"PositionConflict"},
    "after-commit": {None},  # it had committed
}


def test_zombie_task_at_every_step_is_fenced_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "exactly-once", partitions=len(ENDS)) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        zombies = {
            # A long time-out, so that the younger driver ends the transaction and not the coordinator.
            point: pipeline.task(lane, 100, 200, driver, {point: "hang"}, transaction_timeout_ms=300_000)
            for lane, point in enumerate(ENDS)
        }
        for point, zombie in zombies.items():
            zombie.arrived(point)
            zombie.signal(signal.SIGSTOP)
            zombie.release(point)
        assert pipeline.run_driver().driver > driver.driver
        for zombie in zombies.values():
            zombie.signal(signal.SIGCONT)
        ended = {point: zombie.result().error for point, zombie in zombies.items()}
        assert {p: e for p, e in ended.items() if e not in ENDS[p]} == {}
        assert_exactly_once(pipeline, watcher)


def test_zombie_task_at_every_step_claims_nothing_at_most_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with (
        lane_pipeline(kafka.bootstrap_servers, tmp_path, "at-most-once", len(AT_MOST_ONCE_POINTS)) as pipeline,
        watched(pipeline) as watcher,
    ):
        assert_zombie_tasks_claim_nothing(pipeline)
        assert watcher.backwards == []


def test_zombie_driver_does_not_advance_at_least_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    with lane_pipeline(kafka.bootstrap_servers, tmp_path, "at-least-once") as pipeline, watched(pipeline) as watcher:
        assert_zombie_driver_does_not_advance(pipeline)
        assert watcher.backwards == []


# ---------------------------------------------------------------- whole drivers, with Spark

PARTITIONS = 3


def spark_pipeline(kafka: EmbeddedKafka, directory: Path, guarantee: str = "exactly-once") -> tuple[JobSpec, str, str]:
    name = f"zombie-{uuid.uuid4().hex[:8]}"
    source, sink = f"{name}-in", f"{name}-out"
    create_topics(kafka.bootstrap_servers, source, sink, partitions=PARTITIONS)
    return job_of(document(kafka.bootstrap_servers, name, guarantee, source, sink), directory), source, sink


def assert_clean(kafka: EmbeddedKafka, spec: JobSpec, count: int, watcher: Watcher) -> None:
    source, sink = spec.source.topics[0], str(spec.sink_of(KafkaSink).topic)
    wait_until(
        lambda: (
            positions_of(kafka.bootstrap_servers, spec.group, source, PARTITIONS)
            == dict.fromkeys(range(PARTITIONS), count)
        ),
        "positions where the output is",
    )
    assert judge(read(kafka.bootstrap_servers, sink), PARTITIONS, count) == Verdict(0, 0, 0, 0)
    wait_until(lambda: len(watcher.records) >= PARTITIONS * count, "the concurrent reader has every record")
    assert judge(watcher.records, PARTITIONS, count) == Verdict(0, 0, 0, 0)
    assert watcher.backwards == []
    assert_nothing_hangs(kafka.bootstrap_servers, sink, source)


def test_zombie_driver_suspended_overtaken_and_continued_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    servers = kafka.bootstrap_servers
    spec, source, sink = spark_pipeline(kafka, tmp_path)
    feed(servers, source, PARTITIONS, 0, 1000)
    with Watcher(servers, spec.group, source, sink, PARTITIONS) as watcher, running(spec, tmp_path / "first") as first:
        first.until_position(PARTITIONS, 1000)
        hit = first.arm("before-commit")
        feed(servers, source, PARTITIONS, 1000, 1000)
        first.arrived(hit)  # inside a transaction
        first.suspend()
        with running(spec, tmp_path / "second") as second:
            second.until_position(PARTITIONS, 2000)
            first.release("before-commit")
            first.resume()
            feed(servers, source, PARTITIONS, 2000, 1000)
            code = first.job.wait(WAIT)
            assert code == ExitCode.SUPERSEDED, first.job.failure()
            second.until_position(PARTITIONS, 3000)
            second.job.drain()
            assert second.job.wait(WAIT) == ExitCode.OK
        assert_clean(kafka, spec, 3000, watcher)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_driver_that_was_away_does_not_disturb_the_next_one(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    """It continues at the start of a batch, before a heartbeat tells it, while the next one is in the same batch."""
    servers = kafka.bootstrap_servers
    spec, source, sink = spark_pipeline(kafka, tmp_path, guarantee)
    feed(servers, source, PARTITIONS, 0, 100)
    with running(spec, tmp_path / "first") as first:
        first.until_position(PARTITIONS, 100)
        started = first.arm("batch-start")
        feed(servers, source, PARTITIONS, 100, 50)
        first.arrived(started)
        first.suspend()
        with running(spec, tmp_path / "second") as second:
            second.until_position(PARTITIONS, 150)
            hit = second.arm("before-commit" if guarantee == "exactly-once" else "before-advance")
            feed(servers, source, PARTITIONS, 150, 50)
            second.arrived(hit)
            first.release("batch-start")
            first.resume()
            assert first.job.wait(WAIT) == ExitCode.SUPERSEDED, first.job.failure()
            second.release(hit.stem)
            second.until_position(PARTITIONS, 200)
            assert "the query failed" not in second.job.log.read_text()
    assert judge(read(servers, sink), PARTITIONS, 200) == Verdict(0, 0, 0, 0)


def test_two_drivers_that_are_always_restarted_deliver_exactly_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Two supervisors each restart a driver, as after a network split, until two takeovers; records keep coming."""
    servers = kafka.bootstrap_servers
    spec, source, sink = spark_pipeline(kafka, tmp_path)
    fed, lives = 0, 0
    codes: list[int | None] = []
    with Watcher(servers, spec.group, source, sink, PARTITIONS) as watcher:
        rivals = [tmp_path / "a", tmp_path / "b"]
        contexts = [running(spec, home / "0") for home in rivals]
        jobs = [c.__enter__() for c in contexts]
        try:
            deadline = time.monotonic() + 300
            while lives < 2:
                assert time.monotonic() < deadline, f"{lives} overtakings, exit codes {codes}"
                feed(servers, source, PARTITIONS, fed, 200)
                fed += 200
                time.sleep(0.25)  # the pace of the input
                for i, rival in enumerate(jobs):
                    if rival.job.poll() is not None:
                        codes.append(rival.job.poll())
                        lives += 1
                        contexts[i].__exit__(None, None, None)
                        contexts[i] = running(spec, rivals[i] / str(lives))
                        jobs[i] = contexts[i].__enter__()
            wait_until(
                lambda: min(positions_of(servers, spec.group, source, PARTITIONS).values(), default=0) >= fed or None,
                "all is delivered",
            )
        finally:
            for c in contexts:
                c.__exit__(None, None, None)
        assert set(codes) == {ExitCode.SUPERSEDED}
        # Both were killed in the end; the next driver ends their open transactions.
        with running(spec, tmp_path / "last") as last:
            last.until_position(PARTITIONS, fed)
            last.job.drain()
            assert last.job.wait(WAIT) == ExitCode.OK
        assert_clean(kafka, spec, fed, watcher)
