"""What a driver starts early: the JVM, Python workers, and a standby's warm-up, which may hang."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from ackwright_stream import checkpoint, delivery, source, warm_up
from ackwright_stream.cluster import Topology
from ackwright_stream.jobspec import Guarantee
from ackwright_stream.spark_internals import session
from minimal_job import minimal_job
from waiting import WAIT, wait_until


class Hanging:
    """A stream's writer, and its query, which does not end by itself."""

    stopped = False

    def __getattr__(self, _: str) -> Any:
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self

    def awaitTermination(self, timeout: int | None = None) -> bool:
        if timeout is None:
            pytest.fail("it waits without a limit")
        return False

    def stop(self) -> None:
        self.stopped = True


def test_a_warm_up_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    anything: Any = Hanging()
    monkeypatch.setattr(source, "read_stream", anything)
    monkeypatch.setattr(warm_up, "sink_columns", anything)
    monkeypatch.setattr(warm_up, "in_tasks", anything)
    monkeypatch.setattr(checkpoint, "throwaway", nullcontext)
    monkeypatch.setattr(anything, "topology", lambda: Topology({}, {}, {}), raising=False)
    warm_up.warm_up(anything, minimal_job(), anything, anything, headers=False)
    assert anything.stopped
    assert "the standby could not be warmed up" in caplog.text
    assert "it did not end within 60 s" in caplog.text


def test_python_workers_start_while_the_driver_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    going_on, ended = threading.Event(), threading.Event()
    ranges: list[tuple[int, ...]] = []

    def tasks(*numbers: int) -> Any:
        assert going_on.wait(WAIT)
        ranges.append(numbers)
        return SimpleNamespace(mapInArrow=lambda *_: SimpleNamespace(collect=ended.set))

    spark: Any = SimpleNamespace(range=tasks)
    warm_up.start_workers(spark, 2)
    going_on.set()
    wait_until(lambda: "started Python workers" in caplog.text, "the workers are started")
    assert ended.is_set()
    assert ranges == [(0, 2, 1, 2)]


def test_workers_that_do_not_start_are_left_to_the_first_batch(caplog: pytest.LogCaptureFixture) -> None:
    def fails(*_: int) -> Any:
        raise RuntimeError("no executor")

    spark: Any = SimpleNamespace(range=fails)
    warm_up.start_workers(spark, 2)
    wait_until(lambda: "could not be started early: no executor" in caplog.text, "the failure is logged")


@pytest.mark.parametrize(
    ("guarantee", "writer", "expected"),
    [
        (Guarantee.EXACTLY_ONCE, object(), True),
        (Guarantee.AT_MOST_ONCE, object(), True),
        (Guarantee.AT_LEAST_ONCE, object(), False),
        (Guarantee.AT_LEAST_ONCE, None, True),
    ],
)
def test_workers_are_needed_unless_spark_writes(guarantee: Guarantee, writer: object, *, expected: bool) -> None:
    sink: Any = SimpleNamespace(spark_writer=writer)
    assert delivery.for_job(minimal_job(guarantee)).uses_workers(sink) is expected


@pytest.mark.parametrize("fails", [False, True])
def test_the_jvm_starts_with_the_sessions_settings(monkeypatch: pytest.MonkeyPatch, *, fails: bool) -> None:
    """A JVM that does not start is the session's to report."""
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    started: list[tuple[list[tuple[str, str]], str | None]] = []

    def initialise(*, conf: Any) -> None:
        started.append((conf.getAll(), os.environ.get("PYSPARK_PIN_THREAD")))
        if fails:
            raise RuntimeError("JAVA_GATEWAY_EXITED")

    monkeypatch.setattr(SparkContext, "_ensure_initialized", initialise)
    session.start_jvm({"spark.driver.memory": "1g"})
    wait_until(lambda: bool(started), "the JVM starts")
    assert dict(started[0][0])["spark.driver.memory"] == "1g"
    assert started[0][1] == "true"
