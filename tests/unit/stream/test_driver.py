"""What a driver says when it gives up: the cause, and not what its own attempts did to one another."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import driver
from ackwright_stream.driver import Driver
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, Restart
from ackwright_stream.progress import Progress
from minimal_job import minimal_job

SQL = JobError(Reason.BATCH_FAILED, "Division by zero")
FENCED = JobError(Reason.POSITION_CONFLICT, "fenced by a newer instance")
LATER = JobError(Reason.BATCH_FAILED, "the sink is full")
CLUSTER: Any = SimpleNamespace(ends=lambda _: {}, check_group=lambda: None)


def made(monkeypatch: pytest.MonkeyPatch, query: Any, guarantee: Guarantee, stop: threading.Event) -> Driver:
    """A driver that gives up after three failures in a row, with this in place of its query."""
    owned = SimpleNamespace(driver=1, positions={}, expired=0)
    monkeypatch.setattr(driver.ownership, "take", lambda *_: owned)
    monkeypatch.setattr(driver, "Query", query)
    job = SimpleNamespace(
        restart=Restart(initial_ms=1, max_ms=1, forgive_after_ms=60_000, max_attempts=3),
        guarantee=guarantee,
        group="g",
        source=minimal_job(guarantee).source,
    )
    progress = SimpleNamespace(
        lanes=tuple,
        last_error=None,
        **dict.fromkeys(("owns", "count", "state", "failed", "ends"), lambda *_, **__: None),
    )
    return Driver(cast(JobSpec, job), cast(Progress, progress), stop)


@pytest.mark.parametrize(
    ("failures", "told"),
    [
        ((SQL, SQL, SQL), SQL),
        ((SQL, SQL, FENCED), SQL),
        ((SQL, FENCED, LATER), LATER),
        ((FENCED, FENCED, FENCED), FENCED),
    ],
)
def test_the_cause_is_told(monkeypatch: pytest.MonkeyPatch, failures: Sequence[JobError], told: JobError) -> None:
    left = list(failures)

    def fails(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(run=lambda: _raise(left.pop(0)), healthy_s=0.0, gave_up=False, next_limit=None)

    found = made(monkeypatch, fails, Guarantee.EXACTLY_ONCE, stop := threading.Event())
    try:
        with pytest.raises(JobError) as caught:
            found._run_queries(cast(Any, None), CLUSTER, headers=True)
    finally:
        stop.set()
    assert caught.value is told
    assert left == []


MALFORMED = JobError(Reason.MALFORMED_RECORD, "t-0@3 is not UTF-8 text")


@pytest.mark.parametrize(
    ("guarantee", "failures", "healthy_s", "gave_up", "rounds"),
    [
        (Guarantee.EXACTLY_ONCE, [SQL] * 9, 0.0, False, 3),
        (Guarantee.EXACTLY_ONCE, [SQL] * 9, 60.0, False, 9),  # each came after a minute in which nothing was wrong
        (Guarantee.EXACTLY_ONCE, [MALFORMED] * 9, 60.0, False, 1),
        (Guarantee.AT_MOST_ONCE, [MALFORMED] * 9, 0.0, True, 9),  # the next batch is another
        (Guarantee.AT_MOST_ONCE, [MALFORMED] * 9, 0.0, False, 3),  # it could not be given up
        (Guarantee.AT_MOST_ONCE, [SQL] * 9, 0.0, True, 3),
    ],
)
def test_how_often_it_tries(
    monkeypatch: pytest.MonkeyPatch,
    *,
    guarantee: Guarantee,
    failures: Sequence[JobError],
    healthy_s: float,
    gave_up: bool,
    rounds: int,
) -> None:
    left = list(failures)
    stop = threading.Event()

    def fail() -> None:
        error = left.pop(0)
        if not left:
            stop.set()
        raise error

    driver_ = made(
        monkeypatch,
        lambda *_, **__: SimpleNamespace(run=fail, healthy_s=healthy_s, gave_up=gave_up, next_limit=None),
        guarantee,
        stop,
    )
    with contextlib.suppress(JobError):
        driver_._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert len(failures) - len(left) == rounds


def test_a_batch_that_outlasts_its_transactions_is_followed_by_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt at the same range would end like the last."""
    stop, limits, smaller = threading.Event(), list[int | None](), iter([1000, None, 250])

    def query(*_: Any, limit: int | None, **__: Any) -> Any:
        limits.append(limit)
        after = next(smaller, None)
        if len(limits) == 4:
            stop.set()
        return SimpleNamespace(run=lambda: _raise(FENCED), healthy_s=60.0, gave_up=False, next_limit=after)

    made(monkeypatch, query, Guarantee.EXACTLY_ONCE, stop)._run_queries(cast(Any, None), CLUSTER, headers=True)
    assert limits == [250_000, 1000, 1000, 250]


def test_a_failure_keeps_nothing_alive_while_the_driver_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer whose init was not answered asks again, and would fence the next."""

    class Held: ...

    stop, left = threading.Event(), list[weakref.ref[Held]]()

    def fail() -> None:
        gc.collect()
        if left:
            assert left[-1]() is None
            stop.set()
        held = Held()
        left.append(weakref.ref(held))
        try:
            raise RuntimeError(held)
        except RuntimeError as e:
            raise JobError(Reason.BATCH_FAILED, "no brokers") from e

    ends = SimpleNamespace(run=fail, healthy_s=0.0, gave_up=False, next_limit=None)
    made(monkeypatch, lambda *_, **__: ends, Guarantee.EXACTLY_ONCE, stop)._run_queries(
        cast(Any, None), CLUSTER, headers=True
    )
    assert len(left) == 2


def _raise(error: JobError) -> None:
    raise error
