"""A worker keeps one sink, for as long as its tasks are of the same job."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from ackwright_stream.jobspec import Guarantee, JobSpec, KafkaSink, Required, from_json, to_json
from ackwright_stream.sinks import registry
from ackwright_stream.worker_state import WorkerState
from minimal_job import minimal_job

JOB = minimal_job(Guarantee.EXACTLY_ONCE)


@dataclass(frozen=True)
class MemorySpec:
    kind: str = field(default="memory", init=False)
    transaction_timeout_ms: ClassVar[int] = 1000

    def required(self, group: str) -> Iterable[tuple[str, Mapping[str, str], Required]]:
        return ()

    @classmethod
    def of_json(cls, _: object) -> MemorySpec:
        return cls()


class Memory:
    def __init__(self, *, transactional: bool) -> None:
        self.transactional = transactional


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """A job whose sink connects to nothing."""
    monkeypatch.setattr(registry, "_FACTORIES", dict(registry._FACTORIES))
    monkeypatch.setattr("ackwright_stream.jobspec_sinks._SINKS", {})
    for_tasks: Any = lambda _, *, transactional: Memory(transactional=transactional)  # noqa: E731
    for_driver: Any = lambda *_: Memory(transactional=True)  # noqa: E731
    registry.register(MemorySpec, registry.Factory(for_driver, for_tasks))
    return replace(JOB, sink=MemorySpec())


def test_the_same_job_gets_the_same_sink(job: JobSpec) -> None:
    state = WorkerState()
    sink = state.sink(job, transactional=True)
    assert state.sink(from_json(to_json(job)), transactional=True) is sink  # each task unpickles its copy of the job


def test_another_job_or_use_gets_another_sink_and_the_old_one_is_gone(job: JobSpec) -> None:
    state = WorkerState()
    uses = [(job, True), (job, False), (replace(job, name="other"), False)]
    last: weakref.ref[Any] | None = None
    for each, transactional in uses:
        sink: Any = state.sink(each, transactional=transactional)
        assert sink.transactional is transactional
        gc.collect()
        assert last is None or last() is None
        last = weakref.ref(sink)
        del sink


def test_kafka_connects_to_nobody_before_it_is_used() -> None:
    assert WorkerState().sink(JOB, transactional=True).topics == ("out", JOB.sink_of(KafkaSink).positions.lanes_topic)
