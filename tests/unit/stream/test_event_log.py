"""A driver starts without Spark's event log where the log cannot be written."""

from __future__ import annotations

import threading

import pytest

from ackwright_stream import driver
from ackwright_stream.driver import Driver
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import JobSpec, Reason
from ackwright_stream.progress import Progress
from minimal_job import minimal_job

LOGGED = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": "file:///mnt/events"}
NO_SPACE = JobError(Reason.UNEXPECTED, "Spark did not start: no space left")


def started(monkeypatch: pytest.MonkeyPatch, spark: dict[str, str], *failures: JobError) -> tuple[list[str], Progress]:
    """The values of spark.eventLog.enabled with which a driver starts Spark, whose first starts fail like this."""
    left, tried = list(failures), list[str]()

    def start(job: JobSpec) -> None:
        tried.append(job.spark.get("spark.eventLog.enabled", ""))
        if left:
            raise left.pop(0)

    monkeypatch.setattr(driver, "start_spark", start)
    job = minimal_job(spark=spark)
    progress = Progress(job)
    try:
        Driver(job, progress, threading.Event())._start_spark()
    except JobError:
        tried.append("failed")
    return tried, progress


def test_an_event_log_that_cannot_be_written_does_not_stop_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, progress = started(monkeypatch, LOGGED, NO_SPACE)
    assert tried == ["true", "false"]
    assert progress.snapshot().event_log_error == NO_SPACE.message


def test_a_start_that_fails_without_an_event_log_too_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, LOGGED, NO_SPACE, NO_SPACE)[0] == ["true", "false", "failed"]
    assert started(monkeypatch, {}, NO_SPACE)[0] == ["", "failed"]


def test_an_event_log_that_is_written_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, progress = started(monkeypatch, LOGGED)
    assert (tried, progress.snapshot().event_log_error) == (["true"], None)
