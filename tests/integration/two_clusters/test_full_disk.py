"""The disk of the sink's only broker is full, between two clusters: a small file system, which fills up for real."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.support.lane_pipeline import assert_guaranteed, lane_pipeline, watched
from integration.support.small_disk import fill, small_disk
from integration.support.two_clusters import TwoClusters
from waiting import wait_until


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_the_disk_of_the_sinks_broker_is_full_and_has_space_again(
    two_clusters: TwoClusters, tmp_path: Path, guarantee: str
) -> None:
    """Drivers fail until the broker is back, and continue where the positions are."""
    source, sink = two_clusters.source.bootstrap_servers, two_clusters.sink
    (broker,) = sink.brokers
    with (
        small_disk(sink, broker) as disk,
        lane_pipeline(source, tmp_path, guarantee, 2, 800, to=two_clusters) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.drive(step=10, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 50, "the driver delivers")
        filler = fill(disk)
        wait_until(lambda: not broker.alive, "the broker ends, because it cannot write to its log")
        filler.unlink()
        broker.start()
        sink.wait_until_in_sync(120)
        if driver.result().code:  # it may fail for good; its supervisor starts the next one
            pipeline.run_driver(again=True)
        assert_guaranteed(pipeline, watcher)
    broker.start()
