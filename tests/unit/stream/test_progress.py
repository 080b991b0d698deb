"""The driver's progress as JSON and as Prometheus reads it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from ackwright_stream import progress as module
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason
from ackwright_stream.memory_use import ExecutorUse, MemoryUse
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress, serve
from ackwright_stream.reports import Failure, ProgressReport, State
from minimal_job import minimal_job

JOB = minimal_job()
A, B = Lane("in", 0), Lane("in", 1)


@pytest.fixture
def progress() -> Progress:
    progress = Progress(JOB)
    progress.owns(3, {A: 10, B: 20})
    progress.ends({A: 15, B: 20, Lane("in", 2): 99})
    progress.batch(4, {A: 12}, records=2, seconds=0.25)
    progress.count(restarts=1, malformed_records=5, late_rows=6)
    progress.failed(JobError(Reason.BATCH_FAILED, "no luck"))
    return progress


@pytest.fixture
def address(progress: Progress) -> Iterator[str]:
    server = serve(progress, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 (our own http address)
        return str(answer.read().decode())


def test_before_the_first_batch_everything_is_there_and_zero() -> None:
    report = Progress(JOB).snapshot()
    assert (report.pipeline, report.state, report.batch_id, report.lag, report.records) == (
        "ops/flights",
        State.STARTING,
        -1,
        0,
        0,
    )
    assert report.last_error is None
    assert Progress(JOB).last_error == "none"


def test_json(address: str, progress: Progress) -> None:
    now = json.loads(get(f"{address}/progress"))
    assert now["positions"] == {"in": {"0": 12, "1": 20}}
    assert now["lag"] == 3  # of the lanes that it owns; a partition that it does not know yet does not count
    assert (
        now["driver"],
        now["batchId"],
        now["batches"],
        now["records"],
        now["restarts"],
        now["malformedRecords"],
    ) == (3, 4, 1, 2, 1, 5)
    assert now["recordsPerSecond"] == pytest.approx(0.2)
    assert now["lastError"] == {"reason": "BatchFailed", "message": "no luck"}
    assert ProgressReport.of_json(now) == progress.snapshot()


def test_the_watermark_is_reported_once_there_is_one(address: str, progress: Progress) -> None:
    for none in (None, 0):
        if none is not None:
            progress.watermark(none)
        assert json.loads(get(f"{address}/progress"))["watermark"] is None
        assert "ackwright_watermark" not in get(f"{address}/metrics")
    progress.watermark(1_356_998_400_500)
    now = json.loads(get(f"{address}/progress"))
    assert now["watermark"] == 1_356_998_400.5
    assert ProgressReport.of_json(now) == progress.snapshot()
    assert ProgressReport.of_json({k: v for k, v in now.items() if k != "watermark"}).watermark is None
    labels = 'guarantee="exactly-once",pipeline="ops/flights"'
    assert f"ackwright_watermark_timestamp_seconds{{{labels}}} 1.3569984005e+09" in get(f"{address}/metrics")


def test_a_batch_that_runs_again_is_reported(address: str, progress: Progress) -> None:
    progress.replays(3, 9)
    now = json.loads(get(f"{address}/progress"))
    assert (now["state"], now["replayBatch"], now["replayLast"]) == ("replaying", 3, 9)
    assert ProgressReport.of_json(now) == progress.snapshot()
    earlier = {name: value for name, value in now.items() if not name.startswith("replay")}
    assert ProgressReport.of_json(earlier).replay_batch is None
    progress.state(State.RUNNING)
    assert progress.snapshot().replay_batch is None


def test_an_error_is_reported_with_what_a_person_may_accept(address: str, progress: Progress) -> None:
    progress.failed(JobError(Reason.POSITIONS_MOVED, "moved", fingerprint="0123456789ab"))
    now = json.loads(get(f"{address}/progress"))
    assert now["lastError"] == {"reason": "PositionsMoved", "message": "moved", "fingerprint": "0123456789ab"}
    assert ProgressReport.of_json(now) == progress.snapshot()


def test_a_driver_fails_until_it_has_delivered_a_batch() -> None:
    progress = Progress(JOB)
    progress.ends_unknown(JobError(Reason.BROKERS_UNREACHABLE, "no answer"))
    assert not progress.snapshot().failing
    progress.failed(JobError(Reason.BATCH_FAILED, "boom"))
    assert progress.snapshot().failing
    progress.state(State.RUNNING)
    assert progress.snapshot().failing
    progress.batch(5, {}, records=1, seconds=0.1)
    report = progress.snapshot()
    assert not report.failing
    assert report.last_error == Failure(Reason.BATCH_FAILED, "boom")


def test_prometheus_text_holds_the_same(address: str) -> None:
    families = {f.name: f for f in text_string_to_metric_families(get(f"{address}/metrics"))}
    labels = {"pipeline": "ops/flights", "guarantee": "exactly-once"}

    def value(family: str, **more: str) -> float:
        return next(s.value for s in families[family].samples if s.labels == labels | more)

    assert value("ackwright_lag") == 3
    assert value("ackwright_records") == 2
    assert value("ackwright_malformed_records") == 5
    assert value("ackwright_late_rows") == 6
    assert value("ackwright_position", topic="in", partition="1") == 20
    kinds = {name: f.type for name, f in families.items()}
    assert kinds["ackwright_restarts"] == "counter"
    assert kinds["ackwright_lag"] == "gauge"


def test_what_the_jvms_use_is_exported_once_it_is_known(address: str, progress: Progress) -> None:
    assert "heap" not in get(f"{address}/metrics")
    executor = ExecutorUse("1", heap_peak_bytes=300, off_heap_peak_bytes=40, gc_seconds=1.5, failed_tasks=2)
    progress.memory = MemoryUse(100, 200, (replace(executor, name="driver"), executor))
    progress.executors_requested = 4
    text = get(f"{address}/metrics")
    labels = 'guarantee="exactly-once",pipeline="ops/flights"'
    assert f"ackwright_jvm_heap_bytes{{{labels}}} 100.0" in text
    assert f"ackwright_jvm_heap_max_bytes{{{labels}}} 200.0" in text
    assert f"ackwright_executors{{{labels}}} 1.0" in text
    assert f"ackwright_executors_requested{{{labels}}} 4.0" in text
    assert f'ackwright_executor_heap_peak_bytes{{executor="1",{labels}}} 300.0' in text
    assert f'ackwright_executor_gc_seconds_total{{executor="driver",{labels}}} 1.5' in text
    assert f'ackwright_executor_failed_tasks_total{{executor="1",{labels}}} 2.0' in text


def test_a_lag_is_never_negative(progress: Progress) -> None:
    progress.ends({A: 5, B: 20})
    assert progress.snapshot().lag == 0


def test_a_driver_that_nobody_asks_does_not_collect_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, seconds = Progress(JOB), count()
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), time=lambda: 0.0)
    monkeypatch.setattr(module, "time", clock)
    for number in range(1000):
        progress.batch(number, {}, records=1, seconds=0.1)
        progress.delivered(1)
    assert len(progress._recent) < 20


def test_other_paths(address: str) -> None:
    assert get(f"{address}/healthz") == "ok\n"
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{address}/etc/passwd")
    assert caught.value.code == 404


def test_the_ends_are_those_of_the_drivers_lanes(progress: Progress) -> None:
    progress.owns(1, {Lane("in", 0): 5, Lane("in", 1): 7})
    progress.ends({Lane("in", 0): 9, Lane("in", 1): 7, Lane("other", 0): 3})
    report = progress.snapshot()
    assert (report.ends, report.lag) == ({"in": {"0": 9, "1": 7}}, 4)
    assert ProgressReport.of_json(report.as_json()) == report
    earlier = {name: value for name, value in report.as_json().items() if name != "ends"}
    assert ProgressReport.of_json(earlier).ends == {}
