"""How often a driver restarts its query, and which error it ends with."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ackwright_stream import driver, ownership
from ackwright_stream.delivery.batch_size import BatchSize
from ackwright_stream.delivery.claims import FailedBatch
from ackwright_stream.driver import Driver
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, JobSpec, Reason, Restart
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.progress import Progress
from ackwright_stream.query import Query, QueryFailed
from ackwright_stream.sinks import registry
from ackwright_stream.spark_internals import executors, session
from minimal_job import minimal_job

SQL = JobError(Reason.BATCH_FAILED, "Division by zero")
FENCED = JobError(Reason.POSITION_CONFLICT, "fenced by a newer instance")
LATER = JobError(Reason.BATCH_FAILED, "the sink is full")
CLUSTER: Any = SimpleNamespace(ends=lambda _: {})


def driver_with(
    monkeypatch: pytest.MonkeyPatch,
    query: Any,
    guarantee: Guarantee,
    stop: threading.Event,
    *,
    standby: bool = False,
) -> Driver:
    """A driver that ends after three failures in a row, with this in place of its query."""
    lanes: Any = SimpleNamespace(driver=1)
    owned = ownership.Ownership({}, 0, lanes)
    monkeypatch.setattr(ownership, "take", lambda *_: owned)
    monkeypatch.setattr(driver, "Query", query)
    monkeypatch.setattr(session, "require_running", lambda _: None)
    sink = SimpleNamespace(require_sole_use=lambda: None)
    monkeypatch.setattr(registry, "for_driver", lambda *_: sink)
    job = SimpleNamespace(
        restart=Restart(initial_ms=1, max_ms=1, forgive_after_ms=60_000, max_attempts=3),
        guarantee=guarantee,
        group="g",
        state=None,
        slots=2,
        autoscaling=None,
        standby=standby,
        source=minimal_job(guarantee).source,
    )
    progress = SimpleNamespace(
        lanes=tuple,
        last_error=None,
        address=None,
        **dict.fromkeys(("owns", "count", "state", "failed", "ends", "stands_by"), lambda *_, **__: None),
    )
    return Driver(cast(JobSpec, job), cast(Progress, progress), stop)


@pytest.mark.parametrize(
    ("failures", "raised"),
    [
        ((SQL, SQL, SQL), SQL),
        ((SQL, SQL, FENCED), SQL),
        ((SQL, FENCED, LATER), LATER),
        ((FENCED, FENCED, FENCED), FENCED),
    ],
)
def test_the_root_cause_is_raised(
    monkeypatch: pytest.MonkeyPatch, failures: Sequence[JobError], raised: JobError
) -> None:
    left = list(failures)

    def fails(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(run=lambda: _raise(QueryFailed(left.pop(0))), size=None)

    subject = driver_with(monkeypatch, fails, Guarantee.EXACTLY_ONCE, stop := threading.Event())
    try:
        with pytest.raises(JobError) as caught:
            subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    finally:
        stop.set()
    assert caught.value is raised
    assert left == []


def test_the_next_query_knows_which_state_could_not_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [QueryFailed(SQL, unread_state="a"), QueryFailed(FENCED), QueryFailed(SQL, unread_state="b")]
    known: list[str | None] = []

    def query(*_: Any, unread_state: str | None, **__: Any) -> Any:
        known.append(unread_state)
        return SimpleNamespace(run=lambda: _raise(failures.pop(0)), size=None)

    subject = driver_with(monkeypatch, query, Guarantee.EXACTLY_ONCE, stop := threading.Event())
    with contextlib.suppress(JobError):
        subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert known == [None, "a", "a"]


MALFORMED = JobError(Reason.MALFORMED_RECORD, "t-0@3 is not UTF-8 text")


@pytest.mark.parametrize(
    ("guarantee", "failures", "healthy_s", "batch_abandoned", "rounds"),
    [
        (Guarantee.EXACTLY_ONCE, [SQL] * 9, 0.0, False, 3),
        (Guarantee.EXACTLY_ONCE, [SQL] * 9, 60.0, False, 9),  # each came after a minute in which nothing was wrong
        (Guarantee.EXACTLY_ONCE, [MALFORMED] * 9, 60.0, False, 1),
        (Guarantee.AT_MOST_ONCE, [MALFORMED] * 9, 0.0, True, 9),  # the next batch is another
        (Guarantee.AT_MOST_ONCE, [MALFORMED] * 9, 0.0, False, 3),  # it could not be abandoned
        (Guarantee.AT_MOST_ONCE, [SQL] * 9, 0.0, True, 3),
    ],
)
def test_how_often_it_tries(
    monkeypatch: pytest.MonkeyPatch,
    *,
    guarantee: Guarantee,
    failures: Sequence[JobError],
    healthy_s: float,
    batch_abandoned: bool,
    rounds: int,
) -> None:
    left = list(failures)
    stop = threading.Event()

    def fail() -> None:
        error = left.pop(0)
        if not left:
            stop.set()
        raise QueryFailed(error, healthy_s, batch_abandoned=batch_abandoned)

    subject = driver_with(
        monkeypatch,
        lambda *_, **__: SimpleNamespace(run=fail, size=None),
        guarantee,
        stop,
    )
    with contextlib.suppress(JobError):
        subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert len(failures) - len(left) == rounds


TIMED_OUT = JobError(Reason.TRANSACTION_TIMED_OUT, "the attempt took 60 s")


def test_time_outs_after_which_batches_are_smaller_do_not_end_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process would start with the declared size again, and never get to the smallest one."""
    failures = [QueryFailed(TIMED_OUT, limit_reduced=True)] * 9 + [QueryFailed(TIMED_OUT)] * 3

    def fails(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(run=lambda: _raise(failures.pop(0)), size=None)

    subject = driver_with(monkeypatch, fails, Guarantee.EXACTLY_ONCE, stop := threading.Event())
    with pytest.raises(JobError, match="60 s"):
        subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert failures == []


@pytest.mark.parametrize(("stateful", "rounds"), [(True, 9 + 3), (False, 3)])
def test_a_lost_executor_does_not_end_the_driver_of_a_stateful_pipeline(
    monkeypatch: pytest.MonkeyPatch,
    *,
    stateful: bool,
    rounds: int,
) -> None:
    """Nine failures are due to an executor each, and those behind them are not."""
    lost: list[str] = []
    attempts: list[JobError] = []

    def fail() -> None:
        attempts.append(SQL)
        if len(attempts) <= 9:
            lost.append(str(len(attempts)))
        raise QueryFailed(SQL)

    monkeypatch.setattr(executors, "ended", lambda _: frozenset(lost))
    subject = driver_with(
        monkeypatch,
        lambda *_, **__: SimpleNamespace(run=fail, size=None),
        Guarantee.EXACTLY_ONCE,
        stop := threading.Event(),
    )
    cast(Any, subject._job).state = object() if stateful else None
    with pytest.raises(JobError):
        subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert len(attempts) == rounds


def test_a_failed_query_reports_whether_the_next_batches_are_smaller() -> None:
    nothing: Any = None
    owned = ownership.Ownership({}, 0, nothing)
    query = Query(nothing, minimal_job(), owned, nothing, nothing, size=BatchSize.from_limits(250_000, 100))
    assert not query._failed(FENCED).limit_reduced
    query.size = BatchSize.from_limits(250_000, 100).after_time_out(250_000)
    assert query._failed(TIMED_OUT).limit_reduced


def sized(run: Any, *sizes: BatchSize) -> tuple[Any, list[BatchSize]]:
    """A stand-in for Query, whose objects have these sizes after `run`, one after the other; and the sizes that they
    are created with."""
    left, sizes_used = list(sizes), list[BatchSize]()

    def query(_: Any, __: Any, owned: Any, *___: Any, size: BatchSize, **____: Any) -> Any:
        sizes_used.append(size)
        after = left.pop(0)
        return SimpleNamespace(
            run=lambda: run(len(left)),
            size=after,
            limit_has_grown=after.limit > size.limit,
            positions=owned.positions,
            decision=None,
        )

    return query, sizes_used


def test_the_limit_of_a_query_is_what_its_last_one_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt at the same range would time out like the last."""
    stop, full = threading.Event(), BatchSize.from_limits(250_000, 100)
    smaller = [full.after_time_out(4000), full.after_time_out(4000), full.after_time_out(1000)]

    def fail(left: int) -> None:
        if not left:
            stop.set()
        raise QueryFailed(FENCED, 60.0)

    query, sizes_used = sized(fail, *smaller, smaller[-1])
    driver_with(monkeypatch, query, Guarantee.EXACTLY_ONCE, stop)._run_queries(cast(Any, None), CLUSTER, headers=True)
    assert [size.limit for size in sizes_used] == [250_000, 1000, 1000, 250]


def test_a_query_whose_limit_has_grown_is_followed_by_one_that_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a failure, so without a back-off, and without taking the lanes again."""
    stop, full = threading.Event(), BatchSize.from_limits(250_000, 100)
    reduced = full.after_time_out(4000)
    takes = list[int]()

    def end(left: int) -> None:
        if left == 3:
            raise QueryFailed(FENCED, 60.0)

    grown = [replace(reduced, limit=limit) for limit in (1000, 2000, 4000, 4000)]
    query, sizes_used = sized(end, *grown)
    subject = driver_with(monkeypatch, query, Guarantee.EXACTLY_ONCE, stop)
    take = ownership.take
    monkeypatch.setattr(ownership, "take", lambda *a: takes.append(1) or take(*a))  # type: ignore[func-returns-value]
    subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert [size.limit for size in sizes_used] == [250_000, 1000, 2000, 4000]
    assert len(takes) == 2


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
            raise QueryFailed(JobError(Reason.BATCH_FAILED, "no brokers")) from e

    ends = SimpleNamespace(run=fail, size=None)
    driver_with(monkeypatch, lambda *_, **__: ends, Guarantee.EXACTLY_ONCE, stop)._run_queries(
        cast(Any, None), CLUSTER, headers=True
    )
    assert len(left) == 2


LANE = Lane("t", 0)
LOST = FailedBatch((Range(LANE, 0, 10),), driver=1, abandoned=4)


@pytest.mark.parametrize(("superseded", "counted"), [(False, [6]), (True, [])])
def test_the_claims_of_a_failed_batch_are_counted_once_the_positions_are_read_again(
    monkeypatch: pytest.MonkeyPatch, *, superseded: bool, counted: list[int]
) -> None:
    """Of several attempts the first that takes the pipeline counts. What a later driver claims is not this one's."""
    stop, takes, abandoned = threading.Event(), list[int](), list[int]()

    def run() -> None:
        if len(takes) < 3:
            raise QueryFailed(UNREACHABLE, 60.0, batch=LOST)
        stop.set()

    def take(*_: Any) -> ownership.Ownership:
        takes.append(1)
        if len(takes) == 2:
            raise SUPERSEDED if superseded else UNREACHABLE
        lanes: Any = SimpleNamespace(driver=1)
        return ownership.Ownership({}, 0, lanes, before={LANE: Position(10, driver=1)})

    query = SimpleNamespace(run=run, size=None, limit_has_grown=False)
    subject = driver_with(monkeypatch, lambda *_, **__: query, Guarantee.AT_MOST_ONCE, stop, standby=True)
    monkeypatch.setattr(driver, "Standby", lambda *_, **__: Waiting(stood_by=False))
    monkeypatch.setattr(ownership, "take", take)
    subject._progress.address = None
    subject._progress.count = lambda abandoned_records=None, **_: (  # type: ignore[method-assign]
        abandoned.append(abandoned_records) if abandoned_records is not None else None
    )
    monkeypatch.setattr(registry, "for_driver", lambda *_: SimpleNamespace(require_sole_use=lambda: None))
    subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    assert abandoned == counted


def _raise(error: Exception) -> None:
    raise error


# ------------------------------------------------ with a standby


class Waiting:
    """A stand-in for Standby, whose wait ends at once."""

    def __init__(self, *, stood_by: bool) -> None:
        self.stood_by, self.deposals = stood_by, 0

    def wait(self, wait_begins: Callable[[], None]) -> bool:
        if self.stood_by:
            wait_begins()
        return self.stood_by

    def deposed(self) -> None:
        self.deposals += 1


SUPERSEDED = JobError(Reason.SUPERSEDED, "driver 2 owns the pipeline")
UNREACHABLE = JobError(Reason.BROKERS_UNREACHABLE, "no broker answers")


@pytest.mark.parametrize(
    ("standby", "stood_by", "of_query", "of_take", "numbers"),
    [
        # It was suspended, and its successor has stopped before it continues.
        (True, False, FENCED, SUPERSEDED, [None, 1, None]),
        (True, False, SUPERSEDED, UNREACHABLE, [None, None, None]),
        (True, True, FENCED, UNREACHABLE, [None, None, None]),
        (False, False, FENCED, SUPERSEDED, [None, 1]),
    ],
)
def test_a_superseded_driver_ends_or_with_a_standby_is_another_driver(
    monkeypatch: pytest.MonkeyPatch,
    *,
    standby: bool,
    stood_by: bool,
    of_query: JobError,
    of_take: JobError,
    numbers: list[int | None],
) -> None:
    """of_query, of_take: the failures of the first query, and of the second attempt to take the pipeline."""
    stop, takes, waiting = threading.Event(), list[int | None](), Waiting(stood_by=stood_by)

    def run() -> None:
        if len(takes) == 1:
            raise QueryFailed(of_query)
        stop.set()

    subject = driver_with(
        monkeypatch,
        lambda *_, **__: SimpleNamespace(run=run, size=None),
        Guarantee.EXACTLY_ONCE,
        stop,
        standby=standby,
    )
    owned = ownership.take(*[cast(Any, None)] * 4)

    def take(*arguments: Any) -> ownership.Ownership:
        takes.append(arguments[3])
        if len(takes) == 2:
            raise of_take
        return owned

    monkeypatch.setattr(ownership, "take", take)
    monkeypatch.setattr(driver, "Standby", lambda *_, **__: waiting)
    monkeypatch.setattr(driver, "warm_up", lambda *_, **__: None)
    with contextlib.nullcontext() if standby else pytest.raises(JobError, match="driver 2"):
        subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    stop.set()
    assert takes == numbers
    assert waiting.deposals == int(standby)


@pytest.mark.parametrize(
    ("of_query", "stood_by", "expected"),
    [
        # Before the warm-up: its tasks would run on executors that are to end.
        (FENCED, True, ["reset", "warm-up", "query", "reset", "warm-up", "query"]),
        (SUPERSEDED, False, ["query", "reset", "query"]),
        (FENCED, False, ["query", "query"]),  # it may still own the pipeline
    ],
)
def test_a_superseded_driver_releases_its_executors(
    monkeypatch: pytest.MonkeyPatch, *, of_query: JobError, stood_by: bool, expected: list[str]
) -> None:
    """They would take the room of its successor's."""
    stop, events = threading.Event(), list[str]()

    def run() -> None:
        events.append("query")
        if events.count("query") == 1:
            raise QueryFailed(of_query)
        stop.set()

    subject = driver_with(
        monkeypatch, lambda *_, **__: SimpleNamespace(run=run, size=None), Guarantee.EXACTLY_ONCE, stop, standby=True
    )
    subject._executors = cast(Any, SimpleNamespace(reset=lambda: events.append("reset")))
    monkeypatch.setattr(driver, "Standby", lambda *_, **__: Waiting(stood_by=stood_by))
    monkeypatch.setattr(driver, "warm_up", lambda *_, **__: events.append("warm-up"))
    subject._run_queries(cast(Any, None), CLUSTER, headers=True)
    assert events == expected


def test_executors_that_connect_late_are_released_while_the_driver_does_not_own_the_pipeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resets = list[int]()
    subject = driver_with(monkeypatch, None, Guarantee.EXACTLY_ONCE, threading.Event(), standby=True)
    subject._executors = cast(Any, SimpleNamespace(reset=lambda: resets.append(1)))
    subject._number = 1
    subject._require_ready(cast(Any, None))
    assert not resets
    subject._number = None
    subject._require_ready(cast(Any, None))
    assert resets


def test_the_end_of_the_jvm_is_reported_and_no_other_attempt_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever fails first: a query, or a call into the JVM that no longer listens."""
    gone = JobError(Reason.BATCH_FAILED, "Spark's JVM ran out of memory")

    def ended(_: object) -> None:
        raise gone

    for failure in (QueryFailed(SQL), ConnectionRefusedError()):
        attempts: list[int] = []

        def query(*_: object, failure: Exception = failure, attempts: list[int] = attempts, **__: object) -> Any:
            attempts.append(1)
            raise failure

        tried = driver_with(monkeypatch, query, Guarantee.EXACTLY_ONCE, threading.Event())
        monkeypatch.setattr(session, "require_running", ended)
        with pytest.raises(JobError) as raised:
            tried._run_queries(cast(Any, None), CLUSTER, headers=False)
        assert raised.value is gone
        assert attempts == [1]
