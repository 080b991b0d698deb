"""Drivers of Delta Lake, Iceberg and files that return after they were replaced, under the weaker guarantees.

A driver is suspended (SIGSTOP) at a point of a batch, its successor delivers on, and then it continues. Exactly-once:
test_delta_sink.py, test_iceberg_sink.py, test_files_sink.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ackwright.local.kafka import EmbeddedKafka
from integration.support import delta_pipelines, files_pipelines, iceberg_pipelines
from integration.support.pipelines import Verdict

Pipeline = delta_pipelines.Pipeline | iceberg_pipelines.Pipeline | files_pipelines.Pipeline
PIPELINES: dict[str, Callable[..., Pipeline]] = {
    "delta": delta_pipelines.pipeline,
    "iceberg": iceberg_pipelines.pipeline,
    "files": files_pipelines.pipeline,
}
EACH, PARTITIONS = delta_pipelines.EACH, delta_pipelines.PARTITIONS


def overtaken(p: Pipeline, point: str) -> Verdict:
    """A driver is suspended at the point, its successor delivers everything and ends, and the driver continues."""
    p.feed()
    with p.overtaken(point) as driver:
        p.feed()
        p.caught_up(driver)
        p.drain(driver)
    return p.verdict()


@pytest.mark.parametrize("sink", PIPELINES)
@pytest.mark.parametrize(
    ("point", "duplicated"),
    [
        ("mid-produce", 0),  # its rows are in no version, or their files come in addition
        ("before-advance", PARTITIONS * EACH),  # its rows are there, and its successor writes them again
    ],
)
def test_a_driver_that_returns_loses_nothing_at_least_once(
    kafka: EmbeddedKafka, tmp_path: Path, *, sink: str, point: str, duplicated: int
) -> None:
    verdict = overtaken(PIPELINES[sink](kafka, tmp_path, "at-least-once"), point)
    assert (verdict.lost, verdict.unexpected) == (0, 0)
    # A task that continues creates its files of rows without a position, if the sink is files.
    assert verdict.duplicated == duplicated or (sink == "files" and verdict.duplicated <= PARTITIONS * EACH)


@pytest.mark.parametrize("sink", PIPELINES)
@pytest.mark.parametrize("point", ["after-read", "claimed", "mid-produce"])
def test_a_driver_that_returns_repeats_nothing_at_most_once(
    kafka: EmbeddedKafka, tmp_path: Path, *, sink: str, point: str
) -> None:
    """It may write what it has claimed, once."""
    verdict = overtaken(PIPELINES[sink](kafka, tmp_path, "at-most-once"), point)
    assert (verdict.duplicated, verdict.unexpected) == (0, 0)
    assert verdict.lost <= PARTITIONS * EACH
