"""Files in a bucket of a real server of S3. A client that shares no code with the sink reads what is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright.local.ports import free_ports
from ackwright_stream.audit_sinks.files import FilesReader
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import FilesSink, Guarantee, JobSpec, Reason
from ackwright_stream.lanes import Outcome
from ackwright_stream.positions import Lane, Position, Range
from ackwright_stream.sinks.files import storage
from ackwright_stream.sinks.files.sink import FilesStore
from ackwright_stream.sinks.files.state import LaneState, State, StateLog
from integration.support.files_stores import A, B, Driver, Files, batch_rows, decide, job, rows
from integration.support.racing_drivers import EACH, PARTITIONS, assert_guaranteed, race
from integration.support.s3_conflicts import conflicting
from integration.support.s3_proxy import losing_answers
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
from integration.support.stateful_pipelines import with_state
from integration.support.table_rows import judge_rows
from integration.support.weaker_outages import OUTAGES_OF_S3, WEAKER, deliver_through

QUICK = {"timeout.ms": "4000"}
LISTED = ("s3:GetObject", "s3:PutObject", "s3:ListBucket")  # on docs/files.md


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def spec(server: S3Server, tmp_path: Path) -> JobSpec:
    where = {"endpoint": server.endpoint, "region": "us-east-1", "credentials": login(tmp_path / "login", KEY, SECRET)}
    return job(tmp_path, f"s3://{BUCKET}/{tmp_path.name}", commit=QUICK, **where)


@pytest.fixture
def files(server: S3Server, tmp_path: Path) -> Files:
    return Files(f"{BUCKET}/{tmp_path.name}", server.files())


def login(directory: Path, key: str, secret: str) -> str:
    """As a mounted Secret."""
    directory.mkdir()
    (directory / "username").write_text(f"{key}\n")
    (directory / "password").write_text(f"{secret}\n")
    return str(directory)


def with_sink(spec: JobSpec, **fields: Any) -> JobSpec:
    return replace(spec, sink=replace(spec.sink_of(FilesSink), **fields))


def test_files_drivers_and_zombies_in_a_bucket(files: Files, spec: JobSpec) -> None:
    driver = Driver(spec, [A, B])
    ranges = (Range(A, 0, 250), Range(B, 0, 10))
    assert driver.deliver(*ranges) == (Outcome.DONE, 260)
    assert driver.deliver(*ranges) == (Outcome.SKIPPED, 0)
    assert driver.task().advance(0, [Range(B, 10, 12)]) == (Outcome.DONE, 0)
    newer = Driver(spec, [A, B])
    with pytest.raises(JobError, match="another driver has joined"):
        driver.deliver(Range(A, 250, 300))
    assert newer.deliver(Range(A, 250, 270)) == (Outcome.DONE, 20)
    assert (files.offsets(A), files.offsets(B)) == (list(range(270)), list(range(10)))
    assert (files.chain(A), files.chain(B)) == ([(0, 250), (250, 270)], [(0, 10), (10, 12)])


def test_batches_of_a_stateful_pipeline_in_a_bucket(
    files: Files, spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their decisions are longer than what is read of a file's end at first, and equal."""
    monkeypatch.setattr(FilesStore, "compares", False)
    stateful, text = with_state(spec, tmp_path / "state"), "x" * 200_000
    older = Driver(stateful, [A, B])
    decide(older, 0, 0, 250, text=text)

    def overtaken() -> Iterator[Any]:
        yield from batch_rows(250, 300)
        decide(Driver(stateful, [A, B]), 1, 250, 270, text=text)

    with pytest.raises(JobError, match="was created since the last decision was read"):
        decide(older, 1, 250, 300, overtaken(), text=text)
    following = Driver(stateful, [A, B])
    assert following.sink.decisions is not None
    assert (following.sink.decisions.last(), files.offsets(A)) == (text, list(range(270)))


def test_no_driver_takes_the_entry_of_another_one_for_its_own(spec: JobSpec) -> None:
    """Also if the entries are longer than what is read of a file's end."""
    sink = spec.sink_of(FilesSink)
    lanes = {Lane("in", n): LaneState(Position(n, "topic-id", 1, "pipeline"), "topic-id") for n in range(400)}
    state = State(spec.group, generation=1, lanes=lanes)
    assert len(state.to_json()) > storage._TAIL
    logs = [StateLog(sink, spec.group) for _ in range(2)]
    assert [log.append(storage.of(sink), 1, state) for log in logs] == [True, False]


def test_a_server_that_ignores_the_condition_is_refused(spec: JobSpec) -> None:
    with ignoring_conditions(spec.sink_of(FilesSink).endpoint or "") as (endpoint, conditional):
        with pytest.raises(JobError, match="ignores If-None-Match") as caught:
            Driver(with_sink(spec, endpoint=endpoint))
        assert caught.value.reason is Reason.TABLE_UNSUITABLE
        assert len(conditional.paths) == 2, "the entry, and the request that shows that it would be replaced"


def test_of_two_tasks_with_other_boundaries_one_creates_its_file(
    files: Files, spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FilesStore, "compares", False)
    zombie = Driver(spec)

    def late_rows() -> Iterator[Any]:
        yield from rows(A, 0, 9)
        assert Driver(spec).deliver(Range(A, 0, 5)) == (Outcome.DONE, 5)

    with pytest.raises(JobError, match="was created since"):
        zombie.task().advance(0, [Range(A, 0, 9)], late_rows())
    assert (files.offsets(), files.chain()) == (list(range(5)), [(0, 5)])


@pytest.mark.parametrize("lost", [1, 100])
def test_answers_that_are_lost_are_an_unknown_outcome(files: Files, spec: JobSpec, lost: int) -> None:
    """The client sends the request again, and meets its own file. If no answer arrives, the next attempt reads it."""
    driver = Driver(spec)
    with losing_answers(spec.sink_of(FilesSink).endpoint or "") as (endpoint, proxy):
        driver.lanes.job = with_sink(spec, endpoint=endpoint)
        proxy.lost = lost
        assert driver.deliver(Range(A, 0, 10)) == (Outcome.DONE, 10)
        assert proxy.requests > 1
        assert driver.deliver(Range(A, 0, 10)) == (Outcome.SKIPPED, 0)
    assert (files.offsets(), files.chain()) == (list(range(10)), [(0, 10)])


def test_an_answer_that_is_lost_when_a_driver_joins(spec: JobSpec) -> None:
    with losing_answers(spec.sink_of(FilesSink).endpoint or "") as (endpoint, proxy):
        proxy.lost = 1
        assert FilesStore(with_sink(spec, endpoint=endpoint)).join([A]) == b"1"
        assert proxy.requests == 3  # the last one shows that the server refuses to replace a file


def test_control_without_the_comparison_a_lost_answer_is_a_conflict(
    spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = Driver(spec)
    tail = storage.Bucket._tail
    monkeypatch.setattr(storage.Bucket, "_tail", lambda *file: None if tail(*file) is None else b"")
    with losing_answers(spec.sink_of(FilesSink).endpoint or "") as (endpoint, proxy):
        driver.lanes.job = with_sink(spec, endpoint=endpoint)
        proxy.lost = 1
        with pytest.raises(JobError, match="was created since"):
            driver.deliver(Range(A, 0, 10))


@pytest.mark.parametrize("advances", [True, False], ids=["exactly-once", "weaker"])
def test_a_conflict_that_the_server_reports_once_loses_nothing(files: Files, spec: JobSpec, *, advances: bool) -> None:
    """409: another request for the file was under way, and nothing was created."""
    with conflicting(spec.sink_of(FilesSink).endpoint or "") as (endpoint, conflicts):
        driver, batch = Driver(with_sink(spec, endpoint=endpoint)), Range(A, 0, 10)
        advance = [lambda: driver.deliver(batch)]
        weaker = [driver.prepared(batch), lambda: driver.lanes.advance_all([batch])]
        for call in advance if advances else weaker:
            conflicts.remaining = 1
            call()
            assert conflicts.remaining == 0
    assert files.offsets() == list(range(10))
    assert (files.position() if advances else files.settled()) == 10


def test_a_conflict_that_the_server_reports_always_moves_no_position(files: Files, spec: JobSpec) -> None:
    with conflicting(spec.sink_of(FilesSink).endpoint or "") as (endpoint, conflicts):
        driver = Driver(with_sink(spec, endpoint=endpoint, commit={"timeout.ms": "1000"}))
        batch, conflicts.remaining = Range(A, 0, 10), 1_000_000
        for call in (driver.prepared(batch), lambda: driver.deliver(batch), lambda: driver.lanes.advance_all([batch])):
            with pytest.raises(JobError, match="the server refuses to create it, and has no such file") as caught:
                call()
            assert caught.value.reason is Reason.SINK_UNREACHABLE
        assert (files.names(), files.settled()) == ([], 0)
        conflicts.remaining = 0
        assert driver.deliver(batch) == (Outcome.DONE, 10)


def test_names_in_directories_below_are_not_listed(server: S3Server, spec: JobSpec) -> None:
    """As of a copy of the state that somebody has made there."""
    Driver(spec)
    state = f"{spec.sink_of(FilesSink).path.removeprefix('s3://')}/_ackwright/state"
    with server.files().open_output_stream(f"{state}/copy/{9:020}.json") as file:
        file.write(b"{}")
    assert Driver(spec).membership == b"2"


def test_a_footer_that_is_longer_than_what_is_read_at_first(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(spec).deliver(Range(A, 0, 25))
    monkeypatch.setattr(storage, "_TAIL", 32)
    position = FilesStore(spec).read([A])[A]
    assert position is not None
    assert position.offset == 25


def test_the_audit_reads_the_bucket(spec: JobSpec) -> None:
    Driver(spec, [A, B]).deliver(Range(A, 0, 25))
    spark: Any = None
    with FilesReader(spark, spec) as reader:
        assert reader.positions([("in", 0), ("in", 1), ("in", 2)]) == {("in", 0): 25, ("in", 1): 0, ("in", 2): None}
        assert {lane: start.start for lane, start in reader.lane_starts().items()} == {("in", 0): 0, ("in", 1): 0}


@pytest.mark.parametrize(("key", "secret"), [(KEY, "another"), ("unknown", SECRET)])
def test_a_login_that_is_refused_is_named_without_the_secret(
    spec: JobSpec, tmp_path: Path, *, key: str, secret: str
) -> None:
    with pytest.raises(JobError) as caught:
        FilesStore(with_sink(spec, credentials=login(tmp_path / "wrong", key, secret))).check()
    assert caught.value.reason is Reason.SINK_LOGIN_REFUSED, caught.value
    assert secret not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_login_that_changes_is_used_by_the_next_task_and_the_next_query(spec: JobSpec, tmp_path: Path) -> None:
    """Both keep their objects from one to the next."""
    password = tmp_path / "login" / "password"
    driver = Driver(spec)
    task = driver.task()
    assert task.advance(0, [Range(A, 0, 5)], rows(A, 0, 5)) == (Outcome.DONE, 5)
    password.write_text("another")
    with pytest.raises(JobError):
        task.advance(0, [Range(A, 5, 9)], rows(A, 5, 9))
    with pytest.raises(JobError):
        driver.sink.join([A])
    password.write_text(SECRET)
    assert task.advance(0, [Range(A, 5, 9)], rows(A, 5, 9)) == (Outcome.DONE, 4)
    assert int(driver.sink.join([A])) == int(driver.membership) + 1


def as_limited(spec: JobSpec, tmp_path: Path, actions: Iterable[str]) -> JobSpec:
    """The pipeline of a user that may do exactly this, in another place of the bucket."""
    credentials = login(tmp_path / "limited", limited(actions), SECRET)
    place = f"s3://{BUCKET}/{LIMITED}/{tmp_path.name}"
    return replace(spec, sink=replace(spec.sink_of(FilesSink), path=place, credentials=credentials))


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


def test_a_permission_that_is_revoked_loses_and_repeats_nothing(files: Files, spec: JobSpec, tmp_path: Path) -> None:
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    driver.lanes.job = with_sink(spec, credentials=login(tmp_path / "reader", READER, SECRET))
    with pytest.raises(JobError) as of_task:
        driver.deliver(Range(A, 5, 9))
    with pytest.raises(JobError) as of_driver:
        FilesStore(driver.lanes.job).join([A])
    for caught in (of_task, of_driver):
        assert caught.value.reason is Reason.AUTHORIZATION_FAILED, caught.value
    driver.lanes.job = spec
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.DONE, 4)
    assert (files.offsets(), files.chain()) == (list(range(9)), [(0, 5), (5, 9)])


@pytest.mark.parametrize("outage", [S3Server.killed, S3Server.full], ids=["killed", "full"])
def test_an_outage_of_the_server_after_rows_were_written_loses_and_repeats_nothing(
    server: S3Server, files: Files, spec: JobSpec, outage: Outage
) -> None:
    """The file has no name yet, so no reader has its rows."""
    driver = Driver(spec)
    driver.deliver(Range(A, 0, 5))
    with ExitStack() as stack:

        def then_killed() -> Iterator[Any]:
            yield from rows(A, 5, 9)
            stack.enter_context(outage(server))

        with pytest.raises(JobError) as caught:
            driver.task().advance(0, [Range(A, 5, 9)], then_killed())
        assert caught.value.reason is Reason.SINK_UNREACHABLE, caught.value
    assert (files.offsets(), files.chain()) == (list(range(5)), [(0, 5)])
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.DONE, 4)
    assert driver.deliver(Range(A, 5, 9)) == (Outcome.SKIPPED, 0)
    assert (files.offsets(), files.chain()) == (list(range(9)), [(0, 5), (5, 9)])


@pytest.mark.parametrize("guarantee", WEAKER)
@pytest.mark.parametrize(("outage", "reason"), OUTAGES_OF_S3)
def test_an_outage_between_rows_and_positions_keeps_the_weaker_guarantees(
    server: S3Server, files: Files, spec: JobSpec, *, outage: Outage, reason: Reason, guarantee: Guarantee
) -> None:
    weaker = replace(spec, guarantee=guarantee)
    expected = deliver_through(outage(server), guarantee, lambda: Driver(weaker), reason)
    assert files.offsets() == expected


def test_a_server_that_does_not_answer_is_named_without_the_secret(spec: JobSpec) -> None:
    (port,) = free_ports(1)
    with pytest.raises(JobError) as caught:
        FilesStore(with_sink(spec, endpoint=f"http://127.0.0.1:{port}")).check()
    assert caught.value.reason is Reason.SINK_UNREACHABLE
    assert SECRET not in str(caught.value)


def test_a_login_that_is_not_there_is_named(spec: JobSpec) -> None:
    with pytest.raises(JobError, match=r"the username of sink\.files cannot be read from /nowhere/username") as caught:
        FilesStore(with_sink(spec, credentials="/nowhere")).check()
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
            FilesStore(own).require_permission()
        if actions is not LISTED:
            assert caught.value.reason is Reason.AUTHORIZATION_FAILED
    assert files_of(server) == before


def test_a_server_that_ignores_conditions_keeps_nothing_of_the_question(server: S3Server, spec: JobSpec) -> None:
    with ignoring_conditions(server.endpoint) as (endpoint, _):
        FilesStore(with_sink(spec, endpoint=endpoint)).require_permission()
        assert not [path for path, _ in files_of(server) if spec.sink_of(FilesSink).path.removeprefix("s3://") in path]
        Driver(spec)
        with pytest.raises(JobError, match="ignores If-None-Match"):
            FilesStore(with_sink(spec, endpoint=endpoint)).require_permission()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_two_drivers_at_once_in_a_bucket(files: Files, spec: JobSpec, tmp_path: Path, guarantee: str) -> None:
    race(tmp_path, spec, guarantee, "lane")
    assert_guaranteed(judge_rows(files.rows(), PARTITIONS, EACH), guarantee)
