"""Two drivers at once, and drivers and tasks that return after they were replaced, between two clusters.

Under at-least-once and at-most-once; test_lanes.py has exactly-once. Two real clusters, no Spark: see lane_process.py.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from integration.support.lane_pipeline import lane_pipeline, watched
from integration.support.pipelines import Verdict, judge, read
from integration.support.two_clusters import TwoClusters
from waiting import wait_until


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_two_drivers_at_once_between_two_clusters(two_clusters: TwoClusters, tmp_path: Path, guarantee: str) -> None:
    servers = two_clusters.source.bootstrap_servers
    with lane_pipeline(servers, tmp_path, guarantee, 3, 600, to=two_clusters) as pipeline, watched(pipeline) as watcher:
        drivers = [pipeline.drive(points={"taken": "hang"}, step=20, again=True) for _ in range(2)]
        for driver in drivers:
            driver.arrived("taken")  # else one might be through before the other has begun
        for driver in drivers:
            driver.release("taken")
        results = [driver.result() for driver in drivers]
        assert [result.code for result in results] == [0, 0], results
        assert sum(r.failed.get("Superseded", 0) + r.failed.get("PositionConflict", 0) for r in results) > 0
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert verdict.unexpected == 0
        assert (verdict.lost if guarantee == "at-least-once" else verdict.duplicated) == 0
        assert set(pipeline.positions().values()) == {600}
        assert watcher.backwards == []


def test_a_zombie_driver_does_not_advance_at_least_once_between_two_clusters(
    two_clusters: TwoClusters, tmp_path: Path
) -> None:
    servers = two_clusters.source.bootstrap_servers
    with lane_pipeline(servers, tmp_path, "at-least-once", to=two_clusters) as pipeline, watched(pipeline) as watcher:
        pipeline.run_driver(until=100)
        zombie = pipeline.drive(200, {"before-advance": "hang"})
        zombie.arrived("before-advance")
        zombie.signal(signal.SIGSTOP)
        zombie.release("before-advance")
        pipeline.run_driver()
        zombie.signal(signal.SIGCONT)
        assert zombie.result().error == "Superseded"
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert (verdict.lost, verdict.duplicated, verdict.unexpected) == (0, 200, 0)
        assert set(pipeline.positions().values()) == {300}
        assert watcher.backwards == []


def test_a_zombie_task_claims_nothing_at_most_once_between_two_clusters(
    two_clusters: TwoClusters, tmp_path: Path
) -> None:
    """A task may still write, once, what it had claimed before it was overtaken; nothing else."""
    points = ("task-start", "after-init", "after-read", "before-commit", "claimed")
    servers = two_clusters.source.bootstrap_servers
    with (
        lane_pipeline(servers, tmp_path, "at-most-once", len(points), to=two_clusters) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.run_driver(until=100)
        zombies = [pipeline.task(lane, 100, 200, driver, {point: "hang"}) for lane, point in enumerate(points)]
        for zombie, point in zip(zombies, points, strict=True):
            zombie.arrived(point)
            zombie.signal(signal.SIGSTOP)
            zombie.release(point)
        pipeline.run_driver()
        for zombie in zombies:
            zombie.signal(signal.SIGCONT)
        results = [zombie.result() for zombie in zombies]
        assert [result.error is None for result in results] == [False, False, False, False, True], results

        def verdict() -> Verdict:
            return judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)

        wait_until(lambda: verdict().lost == 0, "what was sent without waiting has arrived", 30)
        assert (verdict().duplicated, verdict().unexpected) == (0, 0)
        assert watcher.backwards == []
