"""A Delta table in a bucket of a real server of S3. A reader that shares no code with the sink reads what is there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
import pytest

from ackwright.local.ports import free_ports
from ackwright_stream.audit_sinks.delta import DeltaReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import DeltaSink, Guarantee, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Range
from ackwright_stream.sinks.delta.log import TableLog
from ackwright_stream.sinks.delta.sink import DeltaStore
from integration.support.delta_stores import Table, job
from integration.support.parquet_rows import rows_in
from integration.support.racing_drivers import EACH, PARTITIONS, assert_guaranteed, race
from integration.support.s3_conflicts import conflicting
from integration.support.s3_proxy import Proxy, losing_answers
from integration.support.s3_server import (
    BUCKET,
    KEY,
    LIMITED,
    READER,
    SECRET,
    Outage,
    S3Server,
    files_of,
    limited,
)
from integration.support.s3_unconditional import ignoring_conditions
from integration.support.staged_drivers import A, B, Driver, rows
from integration.support.table_rows import judge_rows, offsets_by_name
from integration.support.weaker_outages import OUTAGES_OF_S3, WEAKER, deliver_through

QUICK = {"timeout.ms": "2000", "checkpoint.interval": "100"}
LISTED = ("s3:GetObject", "s3:PutObject", "s3:ListBucket")  # on docs/delta.md


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def spec(server: S3Server, tmp_path: Path) -> JobSpec:
    where = {"endpoint": server.endpoint, "region": "us-east-1", "credentials": login(tmp_path / "login", KEY, SECRET)}
    return job(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", commit=QUICK, **where)


def login(directory: Path, key: str, secret: str) -> str:
    """As a mounted Secret."""
    directory.mkdir()
    (directory / "username").write_text(f"{key}\n")
    (directory / "password").write_text(f"{secret}\n")
    return str(directory)


def with_sink(spec: JobSpec, **fields: Any) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(DeltaSink), **fields))


def with_login(spec: JobSpec, directory: Path, key: str, secret: str) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(DeltaSink), credentials=login(directory, key, secret)))


def with_endpoint(spec: JobSpec, endpoint: str) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(DeltaSink), endpoint=endpoint))


def delivered(server: S3Server, prefix: str) -> list[tuple[int, int]]:
    """Lane and offset of the rows of the latest version, sorted."""
    files, place = server.files(), f"{BUCKET}/{prefix}"
    infos = files.get_file_info(pafs.FileSelector(f"{place}/_delta_log"))
    entries = sorted(info.path for info in infos if info.path.endswith(".json"))
    actions = [json.loads(line) for entry in entries for line in files.open_input_stream(entry).read().splitlines()]
    # A path that is added again is the same file (Delta's protocol, "Action Reconciliation").
    paths = sorted({f"{place}/{a['add']['path']}" for a in actions if "add" in a})
    return sorted((row["lane"], row["n"]) for row in rows_in(files, paths))


def test_batches_drivers_and_zombies_in_a_bucket(server: S3Server, spec: JobSpec, tmp_path: Path) -> None:
    driver = Driver(spec, [A, B])
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    newer = Driver(spec, [A, B])
    with pytest.raises(JobError, match="another driver has joined"):
        driver.deliver(Range(A, 250, 300))
    assert newer.deliver(Range(A, 250, 270)) == (Outcome.DONE, 20)
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(270)] + [(1, n) for n in range(10)]


def test_of_two_commits_after_one_version_one_is_refused(spec: JobSpec) -> None:
    Driver(spec)
    one, other = TableLog(spec.sink_of(DeltaSink)), TableLog(spec.sink_of(DeltaSink))
    versions = [one.read(), other.read()]
    outcomes = [log.append(v, {"a": n}) for n, (log, v) in enumerate(zip((one, other), versions, strict=True)) if v]
    assert outcomes == [True, False]
    latest = one.read()
    assert latest is not None
    assert latest.lookup("a") == 0


def test_a_server_that_ignores_the_condition_is_refused(spec: JobSpec) -> None:
    Driver(spec)
    with ignoring_conditions(spec.sink_of(DeltaSink).endpoint or "") as (endpoint, _):
        with pytest.raises(JobError, match="ignores If-None-Match") as caught:
            Driver(with_endpoint(spec, endpoint))
        assert caught.value.reason is Reason.TABLE_UNSUITABLE


def test_control_with_a_server_that_ignores_the_condition_two_commits_replace_each_other(spec: JobSpec) -> None:
    Driver(spec)
    with ignoring_conditions(spec.sink_of(DeltaSink).endpoint or "") as (endpoint, conditional):
        sink = with_endpoint(spec, endpoint).sink_of(DeltaSink)
        one, other = TableLog(sink), TableLog(sink)
        of_one, of_other = one.read(), other.read()
        assert of_one is not None
        assert of_other is not None
        outcomes = list[bool]()
        # delta-rs asks for a newer entry first, so the second commit has to come between that and the request.
        conditional.meanwhile = lambda: outcomes.append(other.append(of_other, {"b": 1}))
        assert one.append(of_one, {"a": 1})
        assert outcomes == [True]
        assert len(conditional.paths) == 2, "delta-rs creates an entry with the header"
        assert len({*conditional.paths}) == 1
    latest = TableLog(spec.sink_of(DeltaSink)).read()
    assert latest is not None
    assert (latest.lookup("a"), latest.lookup("b")) == (1, None), "nothing is left of the commit in between"


@pytest.mark.parametrize(("lost", "reason"), [(1, Reason.POSITION_CONFLICT), (100, Reason.SINK_UNREACHABLE)])
def test_answers_that_are_lost_are_an_unknown_outcome(
    server: S3Server, spec: JobSpec, tmp_path: Path, lost: int, reason: Reason
) -> None:
    """The client sends the request again, and meets its own entry, or no answer arrives. The next attempt reads it."""
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    with through_proxy(driver, spec) as proxy:
        proxy.lost = lost
        with pytest.raises(JobError) as caught:
            driver.commit([Range(A, 0, 10)], staged)
        assert caught.value.reason is reason, caught.value
        assert proxy.requests > 1
    assert driver.commit([Range(A, 0, 10)], staged) == (Outcome.SKIPPED, 0)
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(10)]


def test_rows_without_a_position_whose_answer_is_lost_are_there_once(
    server: S3Server, spec: JobSpec, tmp_path: Path
) -> None:
    """As at-most-once publishes them: the second commit adds the same files, so it changes nothing."""
    driver = Driver(spec)
    staged = driver.stage(rows(A, 0, 10))
    with through_proxy(driver, spec) as proxy:
        proxy.lost = 1
        driver.sink.publish(staged, driver.membership)
        assert proxy.requests > 1
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(10)]
    assert driver.sink._log.read().handle.to_pyarrow_table().num_rows == 10, "to delta-rs, too"


def test_a_conflict_that_the_server_reports_loses_nothing(server: S3Server, spec: JobSpec, tmp_path: Path) -> None:
    """409: another request for the entry was under way, and nothing was created."""
    driver = Driver(replace(spec, operation_timeout_ms=500))
    first, second = (driver.stage(rows(A, start, start + 10)) for start in (0, 10))
    sink, direct = spec.sink_of(DeltaSink), driver.sink._log
    with conflicting(sink.endpoint or "") as (endpoint, conflicts):
        driver.sink._log, driver.sink._version = TableLog(replace(sink, endpoint=endpoint)), None
        conflicts.remaining = 1
        assert driver.commit([Range(A, 0, 10)], first) == (Outcome.DONE, 10)
        conflicts.remaining = 1_000_000
        for call in (
            lambda: driver.commit([Range(A, 10, 20)], second),
            lambda: driver.sink.publish(second, driver.membership),
            lambda: driver.lanes.advance_all([Range(A, 10, 20)]),
        ):
            with pytest.raises(JobError) as caught:
                call()
            assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    driver.sink._log, driver.sink._version = direct, None
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(10)]
    assert driver.commit([Range(A, 10, 20)], second) == (Outcome.DONE, 10)


@contextmanager
def through_proxy(driver: Driver, spec: JobSpec) -> Iterator[Proxy]:
    """The driver commits through a proxy. Afterwards it does so directly, and reads the log again."""
    sink, direct = spec.sink_of(DeltaSink), driver.sink._log
    with losing_answers(sink.endpoint or "") as (endpoint, proxy):
        driver.sink._log, driver.sink._version = TableLog(replace(sink, endpoint=endpoint)), None
        yield proxy
    driver.sink._log, driver.sink._version = direct, None


def test_the_audit_reads_the_log_in_the_bucket(spec: JobSpec) -> None:
    Driver(spec, [A, B]).deliver(Range(A, 0, 25))
    spark: Any = None
    with DeltaReader(spark, spec) as reader:
        assert reader.positions([("in", 0), ("in", 1)]) == {("in", 0): 25, ("in", 1): 0}
        assert {lane: start.start for lane, start in reader.lane_starts().items()} == {("in", 0): 0, ("in", 1): 0}


@pytest.mark.parametrize(
    ("key", "secret", "reason"),
    [
        (KEY, "another", Reason.SINK_LOGIN_REFUSED),
        ("unknown", SECRET, Reason.SINK_LOGIN_REFUSED),
    ],
)
def test_a_login_that_is_refused_is_named_without_the_secret(
    spec: JobSpec, tmp_path: Path, *, key: str, secret: str, reason: Reason
) -> None:
    with pytest.raises(JobError) as caught:
        DeltaStore(with_login(spec, tmp_path / "wrong", key, secret)).check()
    assert caught.value.reason is reason, caught.value
    assert secret not in caught.value.message
    assert "\x1b" not in caught.value.message


def test_a_login_that_changes_is_used_by_the_next_task_and_the_next_query(spec: JobSpec, tmp_path: Path) -> None:
    """Both keep their objects from one to the next."""
    password = tmp_path / "login" / "password"
    driver, task = Driver(spec), DeltaStore(spec)
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
    return replace(spec, sink=replace(spec.sink_of(DeltaSink), path=place, credentials=credentials))


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
        DeltaStore(revoked).stage(rows(A, 5, 9))
    allowed, driver.sink._log = driver.sink._log, TableLog(revoked.sink_of(DeltaSink))
    driver.sink._version = None
    with pytest.raises(JobError) as of_driver:
        driver.commit([Range(A, 5, 9)], staged)
    for caught in (of_task, of_driver):
        assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    driver.sink._log = allowed
    assert driver.commit([Range(A, 5, 9)], staged) == (Outcome.DONE, 4)
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(9)]


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
    assert delivered(server, tmp_path.name) == [(0, n) for n in range(9)]


@pytest.mark.parametrize("guarantee", WEAKER)
@pytest.mark.parametrize(("outage", "reason"), OUTAGES_OF_S3)
def test_an_outage_between_rows_and_positions_keeps_the_weaker_guarantees(
    server: S3Server, spec: JobSpec, tmp_path: Path, *, outage: Outage, reason: Reason, guarantee: Guarantee
) -> None:
    weaker = replace(spec, guarantee=guarantee)
    expected = deliver_through(outage(server), guarantee, lambda: Driver(weaker), reason)
    assert [n for _, n in delivered(server, tmp_path.name)] == expected


def test_a_server_that_does_not_answer_is_named_without_the_secret(spec: JobSpec) -> None:
    (port,) = free_ports(1)
    with pytest.raises(JobError) as caught:
        DeltaStore(with_endpoint(spec, f"http://127.0.0.1:{port}")).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert SECRET not in str(caught.value)


def test_a_login_that_is_not_there_is_named(spec: JobSpec) -> None:
    sink = replace(spec.sink_of(DeltaSink), credentials="/nowhere")
    with pytest.raises(JobError, match=r"the username of sink\.delta cannot be read from /nowhere/username") as caught:
        DeltaStore(replace(spec, sink=sink)).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED


@pytest.mark.parametrize("exists", [True, False], ids=["existing", "new"])
def test_a_missing_permission_to_write_is_known_without_a_write(
    server: S3Server, spec: JobSpec, tmp_path: Path, *, exists: bool
) -> None:
    """As `ackwright check` asks, whichever the permission is."""
    path = f"s3://{BUCKET}/{LIMITED}/check-{exists}"
    if exists:
        Driver(with_sink(spec, path=path))
    before = files_of(server)
    for number, actions in enumerate((LISTED, ("s3:GetObject", "s3:ListBucket"))):
        own = with_sink(spec, path=path, credentials=login(tmp_path / f"{number}", limited(actions), SECRET))
        with ExitStack() as refused:
            if actions is not LISTED:
                caught = refused.enter_context(pytest.raises(JobError, match=path))
            DeltaStore(own).require_permission()
        if actions is not LISTED:
            assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert files_of(server) == before


def test_a_server_that_ignores_conditions_keeps_nothing_of_the_question(server: S3Server, spec: JobSpec) -> None:
    with ignoring_conditions(server.endpoint) as (endpoint, _):
        DeltaStore(with_sink(spec, endpoint=endpoint)).require_permission()
        assert not [path for path, _ in files_of(server) if spec.sink_of(DeltaSink).path.removeprefix("s3://") in path]
        Driver(spec)
        with pytest.raises(JobError, match="ignores If-None-Match"):
            DeltaStore(with_sink(spec, endpoint=endpoint)).require_permission()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once_in_a_bucket(server: S3Server, spec: JobSpec, tmp_path: Path, guarantee: str) -> None:
    race(tmp_path, spec, guarantee, "partition")
    table = Table(tmp_path / "copy")
    pafs.copy_files(f"{BUCKET}/{tmp_path.name}", str(table.path), server.files(), pafs.LocalFileSystem())
    assert_guaranteed(judge_rows(table.rows(), PARTITIONS, EACH), guarantee)
    assert offsets_by_name(table.transactions(), spec.group, "in", PARTITIONS) == [EACH] * PARTITIONS
