"""A broker whose disk is full: a small file system for its data, which fills up for real."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ackwright.local.kafka import Broker, EmbeddedKafka
from integration.support.lane_pipeline import assert_guaranteed, lane_pipeline, watched
from integration.support.small_disk import fill, small_disk
from waiting import wait_until


@pytest.fixture
def full_broker(fragile_kafka: EmbeddedKafka) -> Iterator[tuple[Broker, Path]]:
    """A broker with its data on a small file system, and that."""
    broker = fragile_kafka.brokers[2]
    with small_disk(fragile_kafka, broker) as disk:
        yield broker, disk


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_the_disk_of_a_broker_is_full_and_has_space_again(
    fragile_kafka: EmbeddedKafka, full_broker: tuple[Broker, Path], tmp_path: Path, guarantee: str
) -> None:
    broker, disk = full_broker
    with (
        lane_pipeline(fragile_kafka.bootstrap_servers, tmp_path, guarantee, partitions=3, count=800) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.drive(step=20, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 100, "the driver delivers")
        filler = fill(disk)
        wait_until(lambda: not broker.alive, "the broker ends, because it cannot write to its log")
        if driver.result().code:  # it may fail together with the broker; its supervisor starts the next one
            pipeline.run_driver(again=True)
        filler.unlink()
        broker.start()
        fragile_kafka.wait_until_in_sync(120)
        assert_guaranteed(pipeline, watcher)
