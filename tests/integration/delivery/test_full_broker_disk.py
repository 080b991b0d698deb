"""A broker whose disk is full: a small file system for its data, which fills up for real."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ackwright.local.kafka import Broker, EmbeddedKafka
from integration.support.lane_pipeline import assert_exactly_once, lane_pipeline, watched
from integration.support.pipelines import assert_nothing_hangs, judge, read
from waiting import wait_until

SIZE_MB = 96  # the data of an idle broker, its indexes and the records of a test take less than half


def fill(disk: Path) -> Path:
    """Occupies what is left of a file system; returns the file that does it."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as out, suppress(OSError):  # ENOSPC
        while True:
            out.write(bytes(64 * 1024))
    return filler


@pytest.fixture
def small_disk(fragile_kafka: EmbeddedKafka) -> Iterator[tuple[Broker, Path]]:
    """A broker with its data on a small file system, and that. Afterwards it is stopped, with its first data."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a file system")
    broker = fragile_kafka.brokers[2]
    data = fragile_kafka.directory / f"data-{broker.node}"
    before = data.with_name("moved")
    broker.stop()
    data.rename(before)
    data.mkdir()
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "tmpfs", data], check=True, timeout=30)
    try:
        shutil.copytree(before, data, dirs_exist_ok=True)
        broker.start()
        fragile_kafka.wait_until_in_sync(120)
        yield broker, data
        broker.stop()
    finally:
        subprocess.run(["/bin/umount", "--lazy", data], check=True, timeout=30)
    data.rmdir()
    before.rename(data)  # older data: the broker copies what it lacks when it is started


@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once", "exactly-once"])
def test_the_disk_of_a_broker_is_full_and_has_space_again(
    fragile_kafka: EmbeddedKafka, small_disk: tuple[Broker, Path], tmp_path: Path, guarantee: str
) -> None:
    broker, disk = small_disk
    with (
        lane_pipeline(fragile_kafka.bootstrap_servers, tmp_path, guarantee, partitions=3, count=800) as pipeline,
        watched(pipeline) as watcher,
    ):
        driver = pipeline.drive(step=20, again=True)
        wait_until(lambda: min(pipeline.positions().values(), default=0) >= 100, "the driver delivers")
        filler = fill(disk)
        wait_until(lambda: not broker.alive, "the broker ends, because it cannot write to its log", 120)
        if driver.result().code:  # it may fail together with the broker; its supervisor starts the next one
            pipeline.run_driver(again=True)
        filler.unlink()
        broker.start()
        fragile_kafka.wait_until_in_sync(120)
        if guarantee == "exactly-once":
            assert_exactly_once(pipeline, watcher)
            return
        verdict = judge(read(pipeline.bootstrap, pipeline.sink), pipeline.partitions, pipeline.count)
        assert verdict.unexpected == 0
        assert (verdict.duplicated if guarantee == "at-most-once" else verdict.lost) == 0
        assert set(pipeline.positions().values()) == {pipeline.count}
        assert_nothing_hangs(pipeline.bootstrap, pipeline.sink, pipeline.source)
