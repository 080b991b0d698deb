"""Two drivers at once, and drivers and tasks that return after they were replaced, between two clusters.

Under at-least-once and at-most-once; test_lanes.py has exactly-once. Two real clusters, no Spark: see lane_process.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.lane_pipeline import lane_pipeline, watched
from integration.support.pipelines import judge, read
from integration.support.two_clusters import TwoClusters
from integration.support.zombies import (
    AT_MOST_ONCE_POINTS,
    assert_zombie_driver_does_not_advance,
    assert_zombie_tasks_claim_nothing,
)


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
        assert_zombie_driver_does_not_advance(pipeline)
        assert watcher.backwards == []


def test_a_zombie_task_claims_nothing_at_most_once_between_two_clusters(
    two_clusters: TwoClusters, tmp_path: Path
) -> None:
    servers = two_clusters.source.bootstrap_servers
    with (
        lane_pipeline(servers, tmp_path, "at-most-once", len(AT_MOST_ONCE_POINTS), to=two_clusters) as pipeline,
        watched(pipeline) as watcher,
    ):
        assert_zombie_tasks_claim_nothing(pipeline)
        assert watcher.backwards == []
