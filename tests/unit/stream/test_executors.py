"""Executors of a driver with autoscaling: what is measured, when their number changes, and what Spark is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import executors
from ackwright_stream import progress as module
from ackwright_stream.autoscaling import Measurement
from ackwright_stream.executors import Executors
from ackwright_stream.jobspec import Autoscaling
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query
from ackwright_stream.spark_internals import executors as of_spark
from minimal_job import minimal_job

LIMITS = Autoscaling(
    min_executors=1, max_executors=4, cores=1, drain_target_ms=10_000, window_ms=10_000, cool_down_ms=60_000
)
LANE = Lane("in", 0)
LANES = tuple(Lane("in", p) for p in range(8))
SPARK: Any = None


class Cluster:
    """Spark's scheduler: starts as many executors as the cluster has room for, and ends those that are released."""

    def __init__(self, room: int = 10, running: int = 1) -> None:
        self.running = [str(i) for i in range(running)]
        self.room, self.number = room, running
        self.calls: list[tuple[str, int]] = []
        self.failure: Exception | None = None
        self.ending: list[str] = []  # that were released, and are still listed

    def active(self, spark: Any) -> tuple[str, ...]:
        if self.failure:
            raise self.failure
        return tuple(sorted(self.running + self.ending))

    def request_total(self, spark: Any, total: int) -> None:
        self.calls.append(("request", total))
        while len(self.running) < min(total, self.room):
            self.running.append(str(self.number))
            self.number += 1

    def release(self, spark: Any, surplus: tuple[str, ...], remaining: int) -> None:
        self.calls.append(("release", len(surplus)))
        self.running = [e for e in self.running if e not in surplus]
        assert len(self.running) == remaining


class Pipeline:
    """A driver's executors, a clock, and a source whose records arrive while batches run."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, limits: Autoscaling = LIMITS) -> None:
        monkeypatch.setattr(executors, "of_spark", cluster)
        self.now, self.end, self.position = 0.0, 0, 0
        self.progress = Progress(minimal_job())
        self.progress.owns(1, dict.fromkeys(LANES, 0))
        self.progress.ends(dict.fromkeys(LANES, 0))
        self.executors = Executors(SPARK, limits, self.progress, lambda: self.now)
        self.executors.idle()  # the ends are known

    def passes(self, seconds: float, arriving: int = 0, delivering: int = 0) -> None:
        """Time, in which a batch delivers if there is one. The offsets are of all lanes together."""
        self.now += seconds
        self.end += arriving
        self.position += delivering
        self.progress.ends({**dict.fromkeys(LANES, 0), LANE: self.end})
        if delivering:
            self.progress.batch(0, {LANE: self.position}, delivering, seconds)
            self.executors.batch_ended(8, delivering, seconds)
        else:
            self.executors.idle()


def test_a_backlog_raises_the_number_and_its_end_lowers_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    pipeline = Pipeline(cluster, monkeypatch)
    pipeline.passes(0, arriving=300_000)
    for _ in range(4):  # in the first measurement the backlog is what has arrived
        assert cluster.calls == []
        pipeline.passes(10, arriving=10_000, delivering=10_000)
    assert (cluster.calls, pipeline.progress.executors_requested) == ([("request", 4)], 4)
    pipeline.passes(10, delivering=pipeline.end - pipeline.position)
    for _ in range(4):
        pipeline.passes(10)
        assert len(cluster.running) == 4
    pipeline.passes(10)
    assert (cluster.calls[1:], cluster.running) == ([("release", 3)], ["0"]), "the oldest remains"
    assert pipeline.progress.executors_requested == 1


def test_processors_that_have_no_task_or_do_not_run_are_not_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four executors are requested and one runs: what it delivers is the rate of one."""
    cluster = Cluster(room=1)
    pipeline = Pipeline(cluster, monkeypatch)
    pipeline.passes(0, arriving=30_000)
    for _ in range(6):
        pipeline.passes(10, arriving=20_000, delivering=10_000)
    assert pipeline.progress.executors_requested == 4
    pipeline.executors.begin()
    pipeline.executors.idle()
    pipeline.executors.batch_ended(8, 100, 5.0)
    assert pipeline.executors._busy_seconds == 5.0
    cluster.running = ["0", "1", "2"]
    pipeline.executors.batch_ended(2, 100, 5.0)
    assert pipeline.executors._busy_seconds == 15.0


def test_a_measurement_ends_with_a_batch_as_long_as_there_is_a_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a trigger of a minute, the lag before a batch is no backlog."""
    pipeline = Pipeline(Cluster(), monkeypatch)
    for _ in range(5):
        for _ in range(6):
            pipeline.passes(10, arriving=1000)
        pipeline.passes(1, delivering=6000)
        assert pipeline.executors._since == pipeline.now
    assert pipeline.progress.executors_requested == 1


def test_the_time_between_two_queries_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(Cluster(), monkeypatch)
    pipeline.now += 1000
    pipeline.executors.begin()
    pipeline.passes(1)
    assert not pipeline.executors._scaling.measurements
    pipeline.passes(10)
    measured: tuple[Measurement, ...] = pipeline.executors._scaling.measurements
    assert [w.seconds for w in measured] == [10]


def test_more_executors_than_requested_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(running=3)
    pipeline = Pipeline(cluster, monkeypatch)
    pipeline.passes(10)
    assert cluster.running == ["0"]


def scaled(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """With four executors requested."""
    pipeline = Pipeline(cluster, monkeypatch)
    pipeline.passes(0, arriving=300_000)
    for _ in range(4):
        pipeline.passes(10, arriving=10_000, delivering=10_000)
    assert cluster.calls == [("request", 4)]
    return pipeline


def test_a_reset_returns_to_the_smallest_number_and_measures_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: neither the lag nor the cool-down counts for a driver that is superseded."""
    cluster = Cluster()
    pipeline = scaled(cluster, monkeypatch)
    for _ in range(2):
        pipeline.passes(10, arriving=10_000, delivering=10_000)
    pipeline.executors.reset()
    assert (cluster.running, pipeline.progress.executors_requested) == (["0"], 1)
    pipeline.executors.begin()
    for _ in range(3):
        pipeline.passes(10, arriving=10_000, delivering=10_000)
    assert cluster.calls == [("request", 4), ("release", 3)], "nothing that was measured before the reset counts"


def test_a_reset_withdraws_a_request_that_the_cluster_has_not_met(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(room=1)
    pipeline = scaled(cluster, monkeypatch)
    pipeline.executors.reset()
    assert cluster.calls == [("request", 4), ("request", 1)]
    cluster.running.append("1")  # it had been started before
    pipeline.executors.reset()
    assert cluster.running == ["0"]
    pipeline.executors.reset()
    assert cluster.calls[2:] == [("release", 1)]


def test_a_reset_survives_a_failure_of_spark(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster()
    pipeline = scaled(cluster, monkeypatch)
    cluster.failure = RuntimeError("no answer")
    pipeline.executors.reset()
    assert "no answer" in caplog.text


def test_executors_that_are_ending_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lists them for some seconds. As the oldest they would stay, and those that replace them be released."""
    cluster = Cluster(running=3)
    pipeline = Pipeline(cluster, monkeypatch)
    pipeline.passes(10)
    cluster.ending = ["1", "2"]
    pipeline.passes(0, arriving=300_000)
    for _ in range(5):
        pipeline.passes(10, arriving=10_000, delivering=10_000)
    assert cluster.calls == [("release", 2), ("request", 4)]
    assert cluster.running == ["0", "3", "4", "5"]
    assert pipeline.progress.snapshot().executors == 4


def test_a_failure_of_spark_is_logged_and_delivery_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster()
    pipeline = Pipeline(cluster, monkeypatch)
    cluster.failure = RuntimeError("no answer")
    pipeline.passes(10, arriving=10, delivering=10)
    pipeline.passes(10)
    assert "no answer" in caplog.text


def test_nothing_changes_while_a_batch_runs() -> None:
    calls = []
    idle = cast(Any, SimpleNamespace(idle=lambda: calls.append(1), begin=lambda: None))
    query = Query(SPARK, minimal_job(), cast(Any, SimpleNamespace(positions={})), SPARK, SPARK, executors=idle)
    with query._busy:
        query._scale_while_idle()
    assert calls == []
    query._scale_while_idle()
    assert calls == [1]
    assert query._busy.acquire(blocking=False)


def test_missing_executors_are_reported_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: 100.0, time=lambda: 0.0)
    monkeypatch.setattr(module, "time", clock)
    progress = Progress(minimal_job())
    progress.executors_requested = 3

    def counted(now: float, connected: int) -> tuple[int | None, float]:
        clock.monotonic = lambda: now
        progress.count_executors(connected)
        report = progress.snapshot()
        return report.executors, report.executors_missing_s

    assert counted(100, 3) == (3, 0)
    assert counted(110, 2) == (2, 0)
    assert counted(130, 1) == (1, 20)
    assert counted(140, 3) == (3, 0)
    assert counted(150, 2) == (2, 0)
    progress.executors_requested = None
    assert counted(160, 0) == (0, 0), "without autoscaling none is missing"


def test_a_release_never_requests_more_executors_than_remain() -> None:
    """Those to release may have ended already: with a larger total in between, Spark would start others for them."""
    calls: list[tuple[str, Any]] = []
    context = SimpleNamespace(
        killExecutors=lambda ids: calls.append(("kill", ids)),
        requestTotalExecutors=lambda total, *_: calls.append(("request", total)),
    )
    utils = SimpleNamespace(toSeq=tuple, toScalaMap=dict)
    spark: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context), _jvm=SimpleNamespace(PythonUtils=utils))
    of_spark.release(spark, ["1", "2"], 1)
    assert calls == [("kill", ("1", "2")), ("request", 1)]
