"""A real REST catalog behind TLS and a login, and answers of it that do not arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.ports import free_ports
from ackwright_stream.audit_sinks.iceberg import IcebergReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import IcebergSink, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.iceberg.sink import IcebergStore
from integration.support.iceberg_proxy import CLIENT, SCOPE, SECRET, Proxy, secured
from integration.support.iceberg_server import RestCatalogServer
from integration.support.iceberg_stores import Table, job, login
from integration.support.staged_drivers import A, B, Driver, rows


@pytest.fixture
def proxy(rest_catalog: RestCatalogServer, tmp_path: Path) -> Iterator[Proxy]:
    with secured(rest_catalog.uri, tmp_path / "proxy") as started:
        yield started


@pytest.fixture
def in_rest(rest_catalog: RestCatalogServer, tmp_path: Path) -> Table:
    """A table that a driver will create."""
    namespace = f"rest{abs(hash(tmp_path)):x}"
    return Table(rest_catalog.warehouse / namespace, rest_catalog, f"{namespace}.rows")


@pytest.fixture
def spec(in_rest: Table, proxy: Proxy, tmp_path: Path) -> JobSpec:
    return job(
        tmp_path,
        in_rest,
        uri=proxy.uri,
        ca=proxy.ca,
        scope=SCOPE,
        catalog_credentials=login(tmp_path / "login", CLIENT, SECRET),
        commit={"timeout.ms": "2000"},
    )


def with_sink(spec: JobSpec, **fields: Any) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(IcebergSink), **fields))


def test_batches_drivers_zombies_and_the_audit_over_tls_with_a_token(
    in_rest: Table, proxy: Proxy, spec: JobSpec
) -> None:
    driver = Driver(spec, [A, B])
    assert driver.deliver(Range(A, 0, 250), Range(B, 0, 10)) == (Outcome.DONE, 260)
    newer = Driver(spec, [A, B])
    with pytest.raises(JobError, match="another driver has joined"):
        driver.deliver(Range(A, 250, 300))
    assert newer.deliver(Range(A, 250, 270)) == (Outcome.DONE, 20)
    assert (in_rest.offsets(A), in_rest.offsets(B)) == (list(range(270)), list(range(10)))
    spark: Any = None
    with IcebergReader(spark, spec) as reader:
        assert reader.positions([("in", 0), ("in", 1)]) == {("in", 0): 270, ("in", 1): 10}
    assert set(proxy.scopes) == {SCOPE}


def test_a_commit_whose_answer_is_lost_is_committed_once(in_rest: Table, proxy: Proxy, spec: JobSpec) -> None:
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    proxy.loses_answers = True
    with pytest.raises(JobError) as caught:
        driver.commit([Range(A, 0, 10)], staged)
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert in_rest.position(spec.group) == 10, "it has arrived"
    proxy.loses_answers = False
    assert driver.commit([Range(A, 0, 10)], staged) == (Outcome.SKIPPED, 0)
    assert in_rest.offsets() == list(range(10))


@pytest.mark.parametrize(
    "text",
    [
        "Cannot add snapshot with sequence number 3 older than last sequence number 3",
        "Commit validation failed: requirement failed",
    ],
)
def test_a_conflict_that_a_catalog_answers_as_a_bad_request_delays_a_commit(
    in_rest: Table, proxy: Proxy, spec: JobSpec, text: str
) -> None:
    """The catalog has not carried it out, and the driver repeats it after a read."""
    driver = Driver(spec)
    before = in_rest.snapshots
    proxy.bad_requests.append(text)
    assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
    proxy.bad_requests.append(text)
    driver.sink.publish(driver.stage(rows(B, 0, 5)), driver.membership)
    assert (proxy.bad_requests, in_rest.snapshots) == ([], before + 2)
    assert (in_rest.offsets(A), in_rest.offsets(B)) == (list(range(10)), list(range(5)))
    assert in_rest.position(spec.group) == 10


def test_a_request_that_a_catalog_does_not_understand_is_reported(in_rest: Table, proxy: Proxy, spec: JobSpec) -> None:
    driver = Driver(spec)
    proxy.bad_requests.append("unknown update")
    with pytest.raises(JobError, match="unknown update") as caught:
        driver.deliver(Range(A, 0, 10))
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert (in_rest.offsets(), in_rest.position(spec.group)) == ([], 0)


def test_a_catalog_that_hangs_times_out_and_its_late_commit_counts_once(
    rest_catalog: RestCatalogServer, in_rest: Table, spec: JobSpec
) -> None:
    direct = with_sink(spec, uri=rest_catalog.uri, catalog_credentials=None, ca=None)
    driver = Driver(direct)
    version = driver.sink._required()
    staged = driver.sink.staged(driver.stage(rows(A, 0, 10)).of_tasks)
    numbers = {driver.sink.names.lane(A, driver.lanes.topic_ids["in"]): 10}
    rest_catalog.suspend()
    try:
        start = time.monotonic()
        with pytest.raises(JobError) as caught:
            driver.sink._log.append(version, numbers, staged)
        assert time.monotonic() - start < 30
        assert caught.value.reason is Reason.SINK_UNREACHABLE
    finally:
        rest_catalog.resume()
    again = Driver(direct)  # before or after the request that is still in the server's socket
    position = again.sink.read([A])[A]
    assert position is not None
    again.deliver(Range(A, position.offset, 20))
    assert in_rest.position(spec.group) == 20
    assert in_rest.offsets() == list(range(20))


def test_a_bearer_token_is_read_again_for_each_request(
    in_rest: Table, proxy: Proxy, spec: JobSpec, tmp_path: Path
) -> None:
    """Other programs renew it in the Secret."""
    file = tmp_path / "token"
    file.write_text("first\n")
    proxy.tokens.add("first")
    driver = Driver(with_sink(spec, catalog_credentials=None, scope=None, token=str(file)))
    assert driver.deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)
    staged = driver.stage(rows(A, 5, 9))
    proxy.revoke()
    with pytest.raises(JobError) as caught:
        driver.commit([Range(A, 5, 9)], staged)
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED, caught.value
    assert "first" not in caught.value.message
    file.write_text("second\n")
    proxy.tokens.add("second")
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.DONE, 4)
    assert in_rest.offsets() == list(range(9))
    assert proxy.scopes == [], "no token was asked for"


@pytest.mark.parametrize(("client", "secret"), [(CLIENT, "another"), ("unknown", SECRET)])
def test_a_login_that_is_refused_is_named_without_the_secret(
    spec: JobSpec, tmp_path: Path, *, client: str, secret: str
) -> None:
    with pytest.raises(JobError) as caught:
        IcebergStore(with_sink(spec, catalog_credentials=login(tmp_path / "wrong", client, secret))).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED, caught.value
    assert secret not in caught.value.message


def test_a_login_that_changes_is_used_by_the_next_task_and_the_next_query(
    proxy: Proxy, spec: JobSpec, tmp_path: Path
) -> None:
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


def test_a_token_that_is_revoked_is_replaced(in_rest: Table, proxy: Proxy, spec: JobSpec) -> None:
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 5))
    proxy.revoke()
    assert driver.commit([Range(A, 0, 5)], staged) == (Outcome.DONE, 5)
    assert (in_rest.offsets(), len(proxy.tokens)) == (list(range(5)), 1)


def test_a_permission_that_is_revoked_loses_and_repeats_nothing(in_rest: Table, proxy: Proxy, spec: JobSpec) -> None:
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 5))
    proxy.forbids = True
    with pytest.raises(JobError) as caught:
        driver.commit([Range(A, 0, 5)], staged)
    assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    proxy.forbids = False
    assert driver.commit([Range(A, 0, 5)], staged) == (Outcome.DONE, 5)
    assert (in_rest.offsets(), in_rest.position(spec.group)) == (list(range(5)), 5)


def test_a_certificate_of_an_unknown_authority_is_refused(spec: JobSpec) -> None:
    with pytest.raises(JobError, match="certificate") as caught:
        IcebergStore(with_sink(spec, ca=None)).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE


def test_a_server_that_does_not_answer_is_named_without_the_secret(spec: JobSpec) -> None:
    (port,) = free_ports(1)
    with pytest.raises(JobError) as caught:
        IcebergStore(with_sink(spec, uri=f"https://127.0.0.1:{port}")).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert SECRET not in caught.value.message


def test_an_address_that_is_no_catalog_is_named(proxy: Proxy, spec: JobSpec) -> None:
    with pytest.raises(JobError) as caught:
        IcebergStore(with_sink(spec, uri=f"{proxy.uri}/nothing", token_uri=f"{proxy.uri}/v1/oauth/tokens")).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE
