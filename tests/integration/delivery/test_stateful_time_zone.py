"""A stateful pipeline whose session time zone has changed: the driver refuses the state, which is of another zone.

Its windows are grouped by days as well, and the day of a moment depends on the zone. See docs/stateful.md#change-it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.audit import audit
from ackwright_stream.jobspec import ExitCode, JobSpec, KafkaSink, Reason
from ackwright_stream.jobspec_values import TIME_ZONE
from ackwright_stream.reports import Failure, Verdict
from integration.support.pipelines import Record, Running, positions_of, read, running
from integration.support.stateful_windows import feed_seconds, timed_windows
from waiting import WAIT, wait_until

HONOLULU = "Pacific/Honolulu"  # where the first minutes of 1970 in UTC are of the day before
DAYS = """
    SELECT concat_ws(' ', unix_timestamp(window.start), day) AS key, CAST(count(*) AS STRING) AS value
    FROM (SELECT at, CAST(at AS DATE) AS day FROM source) GROUP BY window(at, '10 seconds'), day
"""
# As a driver would be for which the time zone is no part of what computes the state.
_BLIND = """
from ackwright_stream import decisions

decisions.TIME_ZONE = "no setting of Spark"
"""


@dataclass
class Zoned:
    """One pipeline over several runs of its driver. A window of 10 seconds is written when its watermark has passed."""

    job: JobSpec
    directory: Path
    fed: int = 0  # seconds since 1970, of which each has a record
    lives: int = 0

    def feed(self, until: int) -> None:
        feed_seconds(self.job, range(self.fed, until))
        self.fed = until

    def use(self, zone: str) -> None:
        self.job = replace(self.job, spark={**self.job.spark, TIME_ZONE: zone})

    @contextmanager
    def life(self, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
        """The next driver."""
        self.lives += 1
        with running(self.job, self.directory / str(self.lives), environment) as driver:
            yield driver

    def drained(self, windows: int, environment: Mapping[str, str] | None = None) -> None:
        """A run that delivers every record, and ends when there are so many windows."""
        with self.life(environment) as driver:
            driver.until_position(1, self.fed, WAIT)
            wait_until(lambda: len(self.output()) >= windows, f"{windows} windows are output")
            driver.job.drain()
            assert driver.job.wait(WAIT) == ExitCode.OK, driver.job.failure()

    def refused(self) -> Failure:
        """The failure of a run that changes neither output nor positions."""
        before, position = self.output(), self.position()
        with self.life() as driver:
            assert driver.job.wait(WAIT) == ExitCode.INVALID, driver.job.failure()
            failure = driver.job.failure()
        assert failure is not None
        assert (self.output(), self.position()) == (before, position)
        return failure

    def output(self) -> list[Record]:
        return read(self.job.cluster.bootstrap_servers, str(self.job.sink_of(KafkaSink).topic))

    def windows(self) -> list[tuple[str, str]]:
        """When each window begins, with its day, and its count."""
        output = [((r.key or b"").decode(), (r.value or b"").decode()) for r in self.output()]
        return sorted(output, key=lambda window: int(window[0].partition(" ")[0]))

    def position(self) -> dict[int, int]:
        return positions_of(self.job.cluster.bootstrap_servers, self.job.group, self.job.source.topics[0], 1)


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, tmp_path: Path) -> Zoned:
    job = timed_windows(kafka.bootstrap_servers, f"zones-{uuid.uuid4().hex[:8]}", tmp_path)
    return Zoned(replace(job, transform=replace(job.transform, sql=DAYS)), tmp_path)


def test_state_of_another_time_zone_is_refused_until_the_change_is_undone(pipeline: Zoned) -> None:
    pipeline.feed(56)
    pipeline.drained(windows=5)
    pipeline.use(HONOLULU)
    pipeline.feed(80)
    failure = pipeline.refused()
    assert failure.reason is Reason.INVALID_TRANSFORM
    assert "or the time zone have changed; undo the change" in failure.message
    pipeline.use("UTC")
    pipeline.drained(windows=7)
    assert pipeline.windows() == [(f"{begin} 1970-01-01", "10") for begin in range(0, 70, 10)]


def test_control_without_the_comparison_a_window_is_cut_by_the_change(pipeline: Zoned) -> None:
    """The window from 50 on has records of both zones."""
    pipeline.feed(56)
    pipeline.drained(windows=5)
    (pipeline.directory / "sitecustomize.py").write_text(_BLIND)
    path = os.pathsep.join([str(pipeline.directory), os.environ.get("PYTHONPATH", "")])
    pipeline.use(HONOLULU)
    pipeline.feed(80)
    pipeline.drained(windows=8, environment={"PYTHONPATH": path})
    cut = [window for window in pipeline.windows() if window[0].startswith("50 ")]
    assert sorted(cut) == [("50 1969-12-31", "4"), ("50 1970-01-01", "6")]


def test_a_pipeline_in_another_time_zone_goes_on_in_it(pipeline: Zoned, spark: SparkSession) -> None:
    """Also behind a kill. Control: an audit in UTC expects other days."""
    pipeline.use(HONOLULU)
    pipeline.feed(56)
    with pipeline.life() as driver:
        driver.arrived(driver.arm("batch-end"))
        driver.job.kill()
    pipeline.feed(80)
    pipeline.drained(windows=7)
    assert pipeline.windows() == [(f"{begin} 1969-12-31", "10") for begin in range(0, 70, 10)]
    assert audit(spark, pipeline.job).verdict is Verdict.BROKEN
    spark.conf.set(TIME_ZONE, HONOLULU)  # as the audit's process has it from the jobspec
    try:
        report = audit(spark, pipeline.job)
    finally:
        spark.conf.set(TIME_ZONE, "UTC")
    assert report.verdict is Verdict.HELD, report
    assert report.expected == report.delivered == 7
