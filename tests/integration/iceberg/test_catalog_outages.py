"""A real REST catalog that is killed, refuses logins and commits, or whose answers are lost, under each guarantee.

Its tables outlive it, in a file of SQLite. The reader shares no code with the sink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, IcebergSink, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from integration.support.iceberg_pipelines import EACH, PARTITIONS, pipeline
from integration.support.iceberg_proxy import CLIENT, SCOPE, SECRET, Proxy, secured
from integration.support.iceberg_server import RestCatalogServer
from integration.support.iceberg_stores import Table, job, login
from integration.support.staged_drivers import A, Driver, rows
from integration.support.weaker_outages import AFTER, BEFORE, DURING, WEAKER, deliver_through

ROWS, POSITIONS, BOTH = "rows", "positions", "both"
COMMITS = [  # of a batch, by guarantee
    pytest.param(Guarantee.EXACTLY_ONCE, BOTH, id="exactly-once"),
    pytest.param(Guarantee.AT_LEAST_ONCE, ROWS, id="at-least-once-rows"),
    pytest.param(Guarantee.AT_LEAST_ONCE, POSITIONS, id="at-least-once-positions"),
    pytest.param(Guarantee.AT_MOST_ONCE, POSITIONS, id="at-most-once-positions"),
    pytest.param(Guarantee.AT_MOST_ONCE, ROWS, id="at-most-once-rows"),
]
STEPS_OF_WEAKER = [  # that deliver_through() interrupts, and whether they are the rows of at-least-once
    pytest.param(Guarantee.AT_LEAST_ONCE, True, id="at-least-once-rows"),
    pytest.param(Guarantee.AT_LEAST_ONCE, False, id="at-least-once-positions"),
    pytest.param(Guarantee.AT_MOST_ONCE, False, id="at-most-once-rows"),
]


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    with RestCatalogServer(tmp_path_factory.mktemp("catalog"), durable=True) as server:
        yield server


@pytest.fixture
def table(catalog: RestCatalogServer, tmp_path: Path) -> Table:
    """A table that a driver will create."""
    namespace = f"outage{abs(hash(tmp_path)):x}"
    return Table(catalog.warehouse / namespace, catalog, f"{namespace}.rows")


@pytest.fixture
def spec(table: Table, tmp_path: Path) -> JobSpec:
    return job(tmp_path, table, commit={"timeout.ms": "4000"})


@pytest.fixture
def proxy(catalog: RestCatalogServer, tmp_path: Path) -> Iterator[Proxy]:
    with secured(catalog.uri, tmp_path / "proxy") as started:
        yield started


@pytest.fixture
def proxied(spec: JobSpec, proxy: Proxy, tmp_path: Path) -> JobSpec:
    """The same pipeline with a login, through the proxy."""
    credentials = login(tmp_path / "login", CLIENT, SECRET)
    return with_sink(spec, uri=proxy.uri, ca=proxy.ca, scope=SCOPE, catalog_credentials=credentials)


def with_sink(spec: JobSpec, **fields: Any) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(IcebergSink), **fields))


# ---------------------------------------------------------------- the commits of a batch


def commits(driver: Driver, guarantee: Guarantee, batch: Range) -> Mapping[str, Callable[[], Any]]:
    """Functions that commit a batch, in the guarantee's order. Its rows are staged now."""
    staged = driver.stage(rows(A, batch.start, batch.until))
    publish = partial(driver.sink.publish, staged, driver.membership)
    if guarantee is Guarantee.EXACTLY_ONCE:
        return {BOTH: lambda: driver.commit([batch], staged)}
    if guarantee is Guarantee.AT_LEAST_ONCE:
        return {ROWS: publish, POSITIONS: lambda: driver.lanes.advance_all([batch])}
    return {POSITIONS: lambda: driver.lanes.advance(0, [batch]), ROWS: publish}


def deliver(driver: Driver, guarantee: Guarantee, batch: Range) -> None:
    for commit in commits(driver, guarantee, batch).values():
        commit()


def refused(call: Callable[[], Any], reason: Reason, beginning: str = "") -> None:
    """Asserts that the call raises a JobError with the reason, whose message begins so."""
    with pytest.raises(JobError) as caught:
        call()
    assert caught.value.reason is reason, caught.value
    assert caught.value.message.startswith(beginning)


def deliver_without_answer(
    outage: AbstractContextManager[Any],
    guarantee: Guarantee,
    step: str,
    new_driver: Callable[[], Driver],
    *,
    arrives: bool,
) -> list[int]:
    """Delivers three batches, and returns the offsets whose rows must be there, sorted.

    outage: while it is open, one commit of the second batch gets no answer, and the next driver resumes. step: the name
    of that commit. arrives: whether the catalog executes it.
    """
    driver = new_driver()
    deliver(driver, guarantee, BEFORE)
    for name, commit in commits(driver, guarantee, DURING).items():
        if name == step:
            driver.sink.read([A])  # the driver keeps what it has read, so that its next request is the commit
            with outage:
                refused(commit, Reason.SINK_UNREACHABLE, "committing to ")
            break
        commit()
    following = new_driver()
    has_moved = guarantee is Guarantee.AT_MOST_ONCE if step == ROWS else arrives
    start = DURING.until if has_moved else DURING.start
    assert following.sink.read([A])[A].offset == start
    deliver(following, guarantee, Range(A, start, AFTER.until))
    are_written = guarantee is Guarantee.AT_LEAST_ONCE if step == POSITIONS else arrives
    written = range(DURING.start, DURING.until) if are_written else ()
    return sorted([*range(BEFORE.until), *written, *range(start, AFTER.until)])


def assert_guaranteed(guarantee: Guarantee, offsets: Sequence[int]) -> None:
    """Asserts what the guarantee says of the rows of all three batches."""
    counts = Counter(offsets)
    assert counts.keys() <= set(range(AFTER.until))
    assert guarantee is Guarantee.AT_MOST_ONCE or counts.keys() == set(range(AFTER.until))
    assert guarantee is Guarantee.AT_LEAST_ONCE or set(counts.values()) == {1}


# ---------------------------------------------------------------- the catalog is killed


@contextmanager
def killed_before_a_commit(catalog: RestCatalogServer) -> Iterator[None]:
    """A commit is in the socket of the catalog when it is killed."""
    catalog.suspend()
    try:
        yield
    finally:
        with catalog.killed():
            pass


@contextmanager
def killed_after_a_commit(catalog: RestCatalogServer, proxy: Proxy) -> Iterator[None]:
    """The catalog has executed a commit, and is killed before anybody has its answer."""
    with answers_lost(proxy):
        yield
    with catalog.killed():
        pass


@contextmanager
def answers_lost(proxy: Proxy) -> Iterator[None]:
    proxy.loses_answers = True
    try:
        yield
    finally:
        proxy.loses_answers = False


@pytest.mark.parametrize("guarantee", WEAKER)
def test_a_catalog_that_is_killed_between_rows_and_positions_keeps_the_weaker_guarantees(
    catalog: RestCatalogServer, table: Table, spec: JobSpec, guarantee: Guarantee
) -> None:
    weaker = replace(spec, guarantee=guarantee)
    expected = deliver_through(catalog.killed(), guarantee, lambda: Driver(weaker), Reason.SINK_UNREACHABLE)
    assert table.offsets() == expected
    assert table.position(spec.group) == AFTER.until


def test_a_driver_outlives_a_catalog_that_is_killed_after_rows_were_staged(
    catalog: RestCatalogServer, table: Table, spec: JobSpec
) -> None:
    """It loses and repeats nothing."""
    driver = Driver(spec)
    driver.deliver(BEFORE)
    staged = driver.stage(rows(A, DURING.start, DURING.until))
    with catalog.killed():
        refused(lambda: driver.commit([DURING], staged), Reason.SINK_UNREACHABLE)
        refused(lambda: driver.stage(rows(A, AFTER.start, AFTER.until)), Reason.SINK_UNREACHABLE)
        refused(lambda: driver.sink.join([A]), Reason.SINK_UNREACHABLE)
    assert driver.commit([DURING], staged) == (Outcome.DONE, 4)
    assert driver.commit([DURING], staged) == (Outcome.SKIPPED, 0)
    assert driver.deliver(AFTER) == (Outcome.DONE, 3)
    assert (table.offsets(), table.position(spec.group)) == (list(range(AFTER.until)), AFTER.until)


@pytest.mark.parametrize(("guarantee", "step"), COMMITS)
def test_a_catalog_that_is_killed_before_it_executes_a_commit_keeps_each_guarantee(
    catalog: RestCatalogServer, table: Table, spec: JobSpec, *, guarantee: Guarantee, step: str
) -> None:
    of_pipeline, outage = replace(spec, guarantee=guarantee), killed_before_a_commit(catalog)
    expected = deliver_without_answer(outage, guarantee, step, lambda: Driver(of_pipeline), arrives=False)
    assert table.offsets() == expected
    assert table.position(spec.group) == AFTER.until
    assert_guaranteed(guarantee, table.offsets())


@pytest.mark.parametrize(("guarantee", "step"), COMMITS)
def test_a_catalog_that_is_killed_after_it_has_executed_a_commit_keeps_each_guarantee(
    catalog: RestCatalogServer, table: Table, proxy: Proxy, proxied: JobSpec, *, guarantee: Guarantee, step: str
) -> None:
    of_pipeline, outage = replace(proxied, guarantee=guarantee), killed_after_a_commit(catalog, proxy)
    expected = deliver_without_answer(outage, guarantee, step, lambda: Driver(of_pipeline), arrives=True)
    assert table.offsets() == expected
    assert table.position(proxied.group) == AFTER.until
    assert_guaranteed(guarantee, table.offsets())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("guarantee", "point"),
    [
        (Guarantee.EXACTLY_ONCE, "before-commit"),
        (Guarantee.AT_LEAST_ONCE, "before-advance"),
        (Guarantee.AT_MOST_ONCE, "claimed"),
    ],
)
def test_a_job_reports_that_the_catalog_is_down_and_continues(
    kafka: EmbeddedKafka, catalog: RestCatalogServer, table: Table, tmp_path: Path, *, guarantee: Guarantee, point: str
) -> None:
    """The catalog is killed between the two commits of a batch, or before the only one. The job is one process."""
    of_sink = {"catalog": {"uri": catalog.uri}, "table": table.name}
    p = pipeline(kafka, tmp_path, guarantee.value, sink=of_sink)
    p.table = table
    p.feed()
    with p.life() as job:
        p.caught_up(job)
        hit = job.arm(point)
        p.feed()
        job.arrived(hit)
        with catalog.killed():
            job.release(point)
            down = job.until(lambda now: now["lastError"] and now["state"] == "restarting", "the job restarts")
            assert down["lastError"]["reason"] == Reason.SINK_UNREACHABLE
        p.feed()
        p.caught_up(job)
        p.drain(job)
    verdict, report, last = p.verdict(), job.job.final(), PARTITIONS * EACH
    assert report is not None
    assert p.positions() == [p.fed] * PARTITIONS
    assert (verdict.unexpected, verdict.lost) == (0, report.abandoned_records)
    assert 0 < verdict.lost <= last if guarantee is Guarantee.AT_MOST_ONCE else verdict.lost == 0
    assert 0 < verdict.duplicated <= last if guarantee is Guarantee.AT_LEAST_ONCE else verdict.duplicated == 0


# ---------------------------------------------------------------- the network, logins and permissions


@pytest.mark.parametrize(("guarantee", "step"), COMMITS)
def test_a_commit_whose_answer_is_lost_keeps_each_guarantee(
    table: Table, proxy: Proxy, proxied: JobSpec, *, guarantee: Guarantee, step: str
) -> None:
    of_pipeline, outage = replace(proxied, guarantee=guarantee), answers_lost(proxy)
    expected = deliver_without_answer(outage, guarantee, step, lambda: Driver(of_pipeline), arrives=True)
    assert table.offsets() == expected
    assert table.position(proxied.group) == AFTER.until
    assert_guaranteed(guarantee, table.offsets())


@pytest.mark.parametrize(("guarantee", "hits_rows"), STEPS_OF_WEAKER)
def test_a_permission_to_commit_that_is_revoked_keeps_the_weaker_guarantees(
    table: Table, proxy: Proxy, proxied: JobSpec, *, guarantee: Guarantee, hits_rows: bool
) -> None:
    @contextmanager
    def forbidden() -> Iterator[None]:
        proxy.forbids = True
        yield
        proxy.forbids = False

    weaker, reason = replace(proxied, guarantee=guarantee), Reason.AUTHORIZATION_FAILED
    expected = deliver_through(forbidden(), guarantee, lambda: Driver(weaker), reason, hits_rows=hits_rows)
    assert table.offsets() == expected
    assert table.position(proxied.group) == AFTER.until


@pytest.mark.parametrize(("guarantee", "hits_rows"), STEPS_OF_WEAKER)
def test_a_bearer_token_that_is_revoked_keeps_the_weaker_guarantees(
    table: Table, proxy: Proxy, proxied: JobSpec, tmp_path: Path, *, guarantee: Guarantee, hits_rows: bool
) -> None:
    """Until the Secret has another one."""
    file = tmp_path / "token"
    with_token = with_sink(proxied, catalog_credentials=None, scope=None, token=str(file))
    weaker, reason = replace(with_token, guarantee=guarantee), Reason.SINK_LOGIN_REFUSED

    def issue(token: str) -> None:
        file.write_text(token)
        proxy.tokens.add(token)

    @contextmanager
    def revoked() -> Iterator[None]:
        proxy.revoke()
        yield
        issue("second")

    issue("first")
    expected = deliver_through(revoked(), guarantee, lambda: Driver(weaker), reason, hits_rows=hits_rows)
    assert table.offsets() == expected
    assert table.position(proxied.group) == AFTER.until


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_token_that_is_revoked_before_each_commit_is_replaced(
    table: Table, proxy: Proxy, proxied: JobSpec, guarantee: Guarantee
) -> None:
    """A commit that the catalog has refused for its token is sent again, with another one."""
    driver = Driver(replace(proxied, guarantee=guarantee))
    for batch in (BEFORE, DURING, AFTER):
        for commit in commits(driver, guarantee, batch).values():
            driver.sink.read([A])  # the driver keeps what it has read, so that its next request is the commit
            proxy.revoke()
            commit()
            assert len(proxy.tokens) == 1
    assert (table.offsets(), table.position(proxied.group)) == (list(range(AFTER.until)), AFTER.until)
