"""The parts of a driver's start."""

from __future__ import annotations

import logging

import pytest

from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress
from ackwright_stream.reports import ProgressReport, StartPart
from ackwright_stream.start_times import StartTimes
from minimal_job import minimal_job


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_each_part_begins_where_the_one_before_ends(clock: Clock) -> None:
    times = StartTimes(90.0, clock)
    times.ended(StartPart.IMPORTS)
    clock.now = 107.0
    times.ended(StartPart.JVM, at=104.0)
    times.ended(StartPart.SPARK)
    assert times.seconds == {StartPart.IMPORTS: 10.0, StartPart.JVM: 4.0, StartPart.SPARK: 3.0}


def test_a_part_is_measured_once(clock: Clock) -> None:
    times = StartTimes(90.0, clock)
    times.ended(StartPart.OWNERSHIP)
    clock.now = 200.0
    times.ended(StartPart.OWNERSHIP)  # the query was restarted
    assert times.seconds == {StartPart.OWNERSHIP: 10.0}


def test_a_clock_that_was_set_back_gives_no_negative_part(clock: Clock) -> None:
    times = StartTimes(90.0, clock)
    times.ended(StartPart.IMPORTS)
    times.ended(StartPart.JVM, at=95.0)
    assert times.seconds[StartPart.JVM] == 0.0


def test_the_first_batch_ends_the_start_and_logs_its_parts(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    times = StartTimes(90.0, clock)
    times.ended(StartPart.IMPORTS)
    clock.now = 121.0
    times.ended(StartPart.BATCH)
    times.ended(StartPart.QUERY)
    assert list(times.seconds) == [StartPart.IMPORTS, StartPart.BATCH]
    assert caplog.messages == ["the first batch was delivered 31.0 s after the launch (imports 10.0, batch 21.0)"]


def test_a_standby_measures_no_further_part(clock: Clock) -> None:
    progress = Progress(minimal_job())
    progress.start = StartTimes(90.0, clock)
    progress.start.ended(StartPart.CHECKS)
    progress.stands_by()
    clock.now = 3700.0
    progress.owns(2, {Lane("in", 0): 0})
    progress.batch(0, {Lane("in", 0): 1}, records=1, seconds=1.0)
    assert progress.snapshot().start_seconds == {StartPart.CHECKS: 10.0}


def test_a_driver_of_an_earlier_release_reports_no_parts() -> None:
    report = Progress(minimal_job()).snapshot()
    earlier = {name: value for name, value in report.as_json().items() if name != "startSeconds"}
    assert ProgressReport.of_json(earlier) == report
