"""An Iceberg table in a bucket of a real server of S3. The reader shares no code with the sink."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.ports import free_ports
from ackwright_stream.audit_sinks.iceberg import IcebergReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Guarantee, IcebergSink, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg.log import TableLog
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from ackwright_stream.sinks.staged.positions import Names
from integration.support.iceberg_stores import Table, job, login, rows_in_bucket
from integration.support.s3_server import BUCKET, KEY, LIMITED, READER, SECRET, Outage, S3Server, limited
from integration.support.staged_drivers import A, B, Driver, rows
from integration.support.weaker_outages import OUTAGES_OF_S3, WEAKER, deliver_through

QUICK = {"timeout.ms": "2000"}
LISTED = ("s3:GetObject", "s3:PutObject", "s3:ListBucket")  # on docs/iceberg.md


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def spec(server: S3Server, tmp_path: Path) -> JobSpec:
    where = {"endpoint": server.endpoint, "region": "us-east-1", "credentials": login(tmp_path / "login", KEY, SECRET)}
    return job(tmp_path, Table(tmp_path), warehouse=f"s3://{BUCKET}/{tmp_path.name}", commit=QUICK, **where)


def with_login(spec: JobSpec, directory: Path, key: str, secret: str) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(IcebergSink), credentials=login(directory, key, secret)))


def delivered(server: S3Server, spec: JobSpec, directory: Path) -> list[tuple[int, int]]:
    """Lane and offset of the rows of the latest snapshot, sorted."""
    with closing(sqlite3.connect(directory / "catalog.db")) as catalog:
        ((location,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
    return rows_in_bucket(server.files(), location)


def test_batches_drivers_and_zombies_in_a_bucket(server: S3Server, spec: JobSpec, tmp_path: Path) -> None:
    driver = Driver(spec, [A, B])
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    newer = Driver(spec, [A, B])
    with pytest.raises(JobError, match="another driver has joined"):
        driver.deliver(Range(A, 250, 300))
    assert newer.deliver(Range(A, 250, 270)) == (Outcome.DONE, 20)
    assert delivered(server, spec, tmp_path) == [(0, n) for n in range(270)] + [(1, n) for n in range(10)]


def test_the_audit_reads_the_table_in_the_bucket(spec: JobSpec) -> None:
    Driver(spec, [A, B]).deliver(Range(A, 0, 25))
    spark: Any = None
    with IcebergReader(spark, spec) as reader:
        assert reader.positions([("in", 0), ("in", 1)]) == {("in", 0): 25, ("in", 1): 0}
        assert {lane: start.start for lane, start in reader.lane_starts().items()} == {("in", 0): 0, ("in", 1): 0}


@pytest.mark.parametrize(("key", "secret"), [(KEY, "another"), ("unknown", SECRET)])
def test_a_login_that_is_refused_is_named_without_the_secret(
    spec: JobSpec, tmp_path: Path, *, key: str, secret: str
) -> None:
    Driver(spec)
    with pytest.raises(JobError) as caught:
        IcebergStore(with_login(spec, tmp_path / "wrong", key, secret)).check()
    assert caught.value.reason in (Reason.SINK_LOGIN_REFUSED, Reason.AUTHORIZATION_FAILED), caught.value
    assert secret not in caught.value.message


def test_a_login_that_changes_is_used_by_the_next_task_and_the_next_query(spec: JobSpec, tmp_path: Path) -> None:
    """Both keep their objects from one to the next."""
    password = tmp_path / "login" / "password"
    driver, task = Driver(spec), IcebergStore(spec)
    task.stage(rows(A, 0, 5))
    password.write_text("another")
    with pytest.raises(JobError):
        task.stage(rows(A, 0, 5))
    with pytest.raises(JobError):
        driver.sink.join([A])
    password.write_text(SECRET)
    assert task.stage(rows(A, 0, 5))[0] == 5
    assert int(driver.sink.join([A])) == int(driver.membership) + 1


def as_limited(spec: JobSpec, tmp_path: Path, actions: Iterable[str]) -> JobSpec:
    """The pipeline of a user that may do exactly this, in another place of the bucket."""
    credentials = login(tmp_path / "limited", limited(actions), SECRET)
    place = f"s3://{BUCKET}/{LIMITED}/{tmp_path.name}"
    return replace(spec, sink=replace(spec.sink_of(IcebergSink), warehouse=place, credentials=credentials))


def test_the_job_needs_no_more_than_is_listed(spec: JobSpec, tmp_path: Path) -> None:
    needed = as_limited(spec, tmp_path, LISTED)
    for n in range(3):
        assert Driver(needed).deliver(Range(A, 5 * n, 5 * n + 5)) == (Outcome.DONE, 5)
    assert Driver(needed).deliver(Range(A, 10, 15)) == (Outcome.SKIPPED, 0)


@pytest.mark.parametrize("missing", LISTED)
def test_without_any_one_permission_the_job_stops_and_names_it(spec: JobSpec, tmp_path: Path, missing: str) -> None:
    needed = as_limited(spec, tmp_path, set(LISTED) - {missing})
    with pytest.raises(JobError) as caught:
        Driver(needed).deliver(Range(A, 0, 5))
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value


def test_a_permission_that_is_revoked_loses_and_repeats_nothing(
    server: S3Server, spec: JobSpec, tmp_path: Path
) -> None:
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    staged = driver.stage(rows(A, 5, 9))
    revoked = with_login(spec, tmp_path / "reader", READER, SECRET)
    with pytest.raises(JobError) as of_task:
        IcebergStore(revoked).stage(rows(A, 5, 9))
    allowed = driver.sink._log
    driver.sink._log = TableLog(revoked.sink_of(IcebergSink), Names(spec.group).snapshot)
    driver.sink._version = None
    with pytest.raises(JobError) as of_driver:
        driver.commit([Range(A, 5, 9)], staged)
    for caught in (of_task, of_driver):
        assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    driver.sink._log = allowed
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.DONE, 4)
    assert delivered(server, spec, tmp_path) == [(0, n) for n in range(9)]


@pytest.mark.parametrize("outage", [S3Server.killed, S3Server.full], ids=["killed", "full"])
def test_an_outage_of_the_server_after_rows_were_staged_loses_and_repeats_nothing(
    server: S3Server, spec: JobSpec, tmp_path: Path, outage: Outage
) -> None:
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    staged = driver.stage(rows(A, 5, 9))
    with outage(server):
        for call in (lambda: driver.commit([Range(A, 5, 9)], staged), lambda: driver.stage(rows(A, 9, 12))):
            with pytest.raises(JobError) as caught:
                call()
            assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.DONE, 4)
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.SKIPPED, 0)
    assert delivered(server, spec, tmp_path) == [(0, n) for n in range(9)]


@pytest.mark.parametrize("guarantee", WEAKER)
@pytest.mark.parametrize(("outage", "reason"), OUTAGES_OF_S3)
def test_an_outage_between_rows_and_positions_keeps_the_weaker_guarantees(
    server: S3Server, spec: JobSpec, tmp_path: Path, *, outage: Outage, reason: Reason, guarantee: Guarantee
) -> None:
    weaker = replace(spec, guarantee=guarantee)
    expected = deliver_through(outage(server), guarantee, lambda: Driver(weaker), reason)
    assert [n for _, n in delivered(server, spec, tmp_path)] == expected


def test_a_server_that_does_not_answer_is_named_without_the_secret(spec: JobSpec) -> None:
    (port,) = free_ports(1)
    Driver(spec)
    gone = replace(spec, sink=replace(spec.sink_of(IcebergSink), endpoint=f"http://127.0.0.1:{port}"))
    with pytest.raises(JobError) as caught:
        IcebergStore(gone).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert SECRET not in str(caught.value)


def test_a_login_that_is_not_there_is_named(spec: JobSpec) -> None:
    Driver(spec)
    sink = replace(spec.sink_of(IcebergSink), credentials="/nowhere")
    with pytest.raises(
        JobError, match=r"the username of sink\.iceberg\.s3 cannot be read from /nowhere/username"
    ) as caught:
        IcebergStore(replace(spec, sink=sink)).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED
