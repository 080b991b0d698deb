"""Tables in a bucket whose REST catalog requires a login: one real server for both, which is not Iceberg's own.

The reader shares no code with the sink.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from ackwright_stream.audit_sinks.iceberg import IcebergReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, IcebergSink, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg.log import TableLog
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from ackwright_stream.sinks.staged.positions import Names
from integration.support.iceberg_stores import Table, job, login, rows_in_bucket
from integration.support.s3_server import (
    ADMIN,
    ADMIN_SECRET,
    READER,
    SECRET,
    TABLES,
    Outage,
    S3Server,
    files_of,
    limited,
)
from integration.support.staged_drivers import A, B, Driver, rows
from integration.support.weaker_outages import AFTER, BEFORE, DURING, WEAKER, deliver_through

OAUTH: dict[str, Any] = {}
SIGV4 = {"signing_service": "s3tables", "signing_region": "us-east-1"}
RACERS, ROUNDS = 4, 3
OUTAGES = [  # of the server, and the reason of what fails meanwhile
    pytest.param(S3Server.killed, Reason.SINK_UNREACHABLE, id="killed"),
    pytest.param(S3Server.locked_out, Reason.SINK_LOGIN_REFUSED, id="locked-out"),
]
LISTED = ("s3:GetObject", "s3:PutObject", "s3:ListBucket")  # on docs/iceberg.md


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3"), catalog=True) as started:
        yield started


@pytest.fixture(params=[OAUTH, SIGV4], ids=["oauth", "sigv4"])
def spec(server: S3Server, tmp_path: Path, request: pytest.FixtureRequest) -> JobSpec:
    return job(
        tmp_path,
        Table(tmp_path, name=f"n{abs(hash(tmp_path)):x}.rows"),
        catalog="rest",
        uri=server.catalog,
        warehouse=f"s3://{TABLES}",
        catalog_credentials=login(tmp_path / "catalog-login", ADMIN, ADMIN_SECRET),
        endpoint=server.endpoint,
        region="us-east-1",
        credentials=login(tmp_path / "s3-login", ADMIN, ADMIN_SECRET),
        commit={"timeout.ms": "10000"},
        **request.param,
    )


def with_sink(spec: JobSpec, **fields: Any) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(IcebergSink), **fields))


def delivered(server: S3Server, spec: JobSpec) -> list[tuple[int, int]]:
    """Lane and offset of the rows of the latest snapshot, sorted."""
    location = server.metadata_location(*spec.sink_of(IcebergSink).table.split("."))
    return rows_in_bucket(server.files(), location)


def test_batches_drivers_zombies_and_the_audit(server: S3Server, spec: JobSpec) -> None:
    driver = Driver(spec, [A, B])
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    newer = Driver(spec, [A, B])
    with pytest.raises(JobError, match="another driver has joined"):
        driver.deliver(Range(A, 250, 300))
    assert newer.deliver(Range(A, 250, 270)) == (Outcome.DONE, 20)
    assert delivered(server, spec) == [(0, n) for n in range(270)] + [(1, n) for n in range(10)]
    spark: Any = None
    with IcebergReader(spark, spec) as reader:
        assert reader.positions([("in", 0), ("in", 1)]) == {("in", 0): 270, ("in", 1): 10}


def test_of_commits_that_race_one_is_in_the_table(server: S3Server, spec: JobSpec) -> None:
    driver = Driver(spec)
    for n in range(ROUNDS):
        logs = [TableLog(spec.sink_of(IcebergSink), Names(spec.group).snapshot) for _ in range(RACERS)]
        staged = [driver.sink.staged(driver.stage(rows(A, n, n + 1)).of_tasks) for _ in logs]
        versions = [log.read() for log in logs]
        start = Barrier(RACERS)

        def commit(log: TableLog, version: Any, files: Any, start: Barrier = start) -> bool:
            start.wait()
            return log.append(version, {}, files)

        with ThreadPoolExecutor(RACERS) as pool:
            outcomes = list(pool.map(commit, logs, versions, staged))
        assert sorted(outcomes) == [*[False] * (RACERS - 1), True]
        assert delivered(server, spec) == [(0, offset) for offset in range(n + 1)]


@pytest.mark.parametrize(("key", "secret"), [(ADMIN, "another"), ("unknown", "another")])
def test_a_login_that_is_refused_is_named_without_the_secret(
    spec: JobSpec, tmp_path: Path, *, key: str, secret: str
) -> None:
    Driver(spec)
    with pytest.raises(JobError) as caught:
        IcebergStore(with_sink(spec, catalog_credentials=login(tmp_path / "wrong", key, secret))).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED, caught.value
    assert secret not in caught.value.message


def test_control_without_a_login_the_catalog_refuses(spec: JobSpec) -> None:
    Driver(spec)
    nobody = {"catalog_credentials": None, "signing_service": None, "signing_region": None}
    with pytest.raises(JobError) as caught:
        IcebergStore(with_sink(spec, **nobody)).check()
    assert caught.value.reason in (Reason.SINK_LOGIN_REFUSED, Reason.AUTHORIZATION_FAILED), caught.value


@pytest.mark.parametrize(("outage", "reason"), OUTAGES)
def test_an_outage_after_rows_were_staged_loses_and_repeats_nothing(
    server: S3Server, spec: JobSpec, *, outage: Outage, reason: Reason
) -> None:
    driver = Driver(spec)
    driver.deliver(BEFORE)
    staged = driver.stage(rows(A, DURING.start, DURING.until))
    with outage(server):
        for call in (lambda: driver.commit([DURING], staged), lambda: driver.stage(rows(A, 9, 12))):
            with pytest.raises(JobError) as caught:
                call()
            assert caught.value.reason is reason, caught.value
    assert driver.commit([DURING], staged) == (Outcome.DONE, 4)
    assert driver.commit([DURING], staged) == (Outcome.SKIPPED, 0)
    assert driver.deliver(AFTER) == (Outcome.DONE, 3)
    assert delivered(server, spec) == [(0, n) for n in range(AFTER.until)]


@pytest.mark.parametrize("guarantee", WEAKER)
@pytest.mark.parametrize(("outage", "reason"), OUTAGES)
def test_an_outage_between_rows_and_positions_keeps_the_weaker_guarantees(
    server: S3Server, spec: JobSpec, *, outage: Outage, reason: Reason, guarantee: Guarantee
) -> None:
    weaker = replace(spec, guarantee=guarantee)
    expected = deliver_through(outage(server), guarantee, lambda: Driver(weaker), reason)
    assert delivered(server, spec) == [(0, n) for n in expected]


@pytest.mark.parametrize("missing", [None, *LISTED])
def test_the_job_needs_the_listed_permissions_and_no_more(spec: JobSpec, tmp_path: Path, missing: str | None) -> None:
    """In S3."""
    Driver(spec)
    limits = login(tmp_path / "limited", limited(set(LISTED) - {missing}), SECRET)
    needed = with_sink(spec, credentials=limits)
    if missing is None:
        for n in range(3):
            assert Driver(needed).deliver(Range(A, 5 * n, 5 * n + 5)) == (Outcome.DONE, 5)
        return
    with pytest.raises(JobError) as caught:
        Driver(needed).deliver(Range(A, 0, 5))
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value


@pytest.mark.parametrize("missing", [None, "s3:PutObject"])
def test_a_missing_permission_to_write_is_known_without_a_write(
    server: S3Server, spec: JobSpec, tmp_path: Path, missing: str | None
) -> None:
    """As `ackwright check` asks."""
    Driver(spec)
    before = files_of(server, TABLES)
    limits = login(tmp_path / "limited", limited(set(LISTED) - {missing}), SECRET)
    with ExitStack() as refused:
        if missing:
            caught = refused.enter_context(pytest.raises(JobError, match=f"writing to s3://{TABLES}"))
        IcebergStore(with_sink(spec, credentials=limits)).require_permission()
    if missing:
        assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert files_of(server, TABLES) == before


def test_a_permission_that_is_missing_is_named(spec: JobSpec, tmp_path: Path) -> None:
    Driver(spec)
    with pytest.raises(JobError) as caught:
        Driver(with_sink(spec, catalog_credentials=login(tmp_path / "reader", READER, SECRET)))
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value


def test_a_pod_without_an_identity_of_aws_is_named(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """sigv4 without credentialsSecret."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(JobError, match="has no identity of AWS") as caught:
        IcebergStore(with_sink(spec, catalog_credentials=None, **SIGV4)).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED, caught.value
