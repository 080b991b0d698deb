"""Stateful pipelines whose state is in a bucket of S3, and whose drivers are killed and replaced.

See docs/stateful.md#state-in-s3.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from ackwright.local.kafka import EmbeddedKafka
from ackwright.local.ports import free_ports
from ackwright_stream import state_bucket
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import ExitCode, Reason, StateSettings
from integration.support.pipelines import read
from integration.support.s3_server import ADMIN, ADMIN_SECRET, BUCKET, KEY, READER, SECRET, S3Server
from integration.support.state_buckets import BucketPipeline, bucket_pipeline, in_bucket, login
from integration.support.stateful_lakes import stateful_lake
from integration.support.stateful_pipelines import Counted, counted_behind_another_log
from integration.support.stateful_windows import OF_WINDOW, count_windows, ended_windows
from sql_texts import COUNTS_BY_KEY
from waiting import WAIT, wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def pipeline(kafka: EmbeddedKafka, server: S3Server, tmp_path: Path) -> Iterator[BucketPipeline]:
    with bucket_pipeline(kafka, server, tmp_path, f"bucket-{uuid.uuid4().hex[:8]}") as created:
        yield created


@pytest.mark.parametrize("point", ["evaluated", "batch-end"])
def test_windows_go_on_over_a_kill_around_the_decision(
    kafka: EmbeddedKafka, server: S3Server, tmp_path: Path, point: str
) -> None:
    """State is stored and nothing decided; or the decision is made, and Spark's log of it is not written."""
    with bucket_pipeline(kafka, server, tmp_path, f"windows-{uuid.uuid4().hex[:8]}", partitions=1) as pipeline:
        count_windows(pipeline)
        pipeline.killed_at(point)
        passed = ended_windows(pipeline.fed)
        with pipeline.life() as job:
            pipeline.caught_up(job)
            wait_until(lambda: len(read(pipeline.servers, pipeline.sink)) >= len(passed), "all windows are output")
            pipeline.drain(job)
        output = sorted((int(r.key or b""), int(r.value or b"")) for r in read(pipeline.servers, pipeline.sink))
        assert output == [(begin, OF_WINDOW) for begin in passed]
        assert not list(pipeline.state.rglob("*")), "the state is in the bucket alone"
        assert f"{pipeline.last_decision().directory}/offsets/0" in pipeline.names()
        written = [file for file in tmp_path.rglob("*") if file.is_file() and file.parent.name != "login"]
        assert not [file for file in written if SECRET.encode() in file.read_bytes()], "no file has the secret"


@pytest.mark.parametrize(
    "points",
    [("before-commit",), ("after-commit", "before-commit"), ("evaluated", "batch-end")],
    ids=["open", "commit", "batch"],
)
def test_counts_go_on_over_kills_before_and_after_the_commit(pipeline: BucketPipeline, points: tuple[str, ...]) -> None:
    for point in points:
        pipeline.killed_at(point)
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_output_that_does_not_fit_into_the_memory_is_in_the_bucket_until_it_is_delivered(
    pipeline: BucketPipeline,
) -> None:
    assert pipeline.spec.state is not None
    pipeline.spec = replace(pipeline.spec, state=replace(pipeline.spec.state, batch_bytes=0))
    pipeline.killed_at("mid-produce")
    assert [name for name in pipeline.names() if name.startswith("output/")]
    pipeline.drained()
    assert pipeline.counted() == Counted()
    assert not [name for name in pipeline.names() if name.startswith("output/")]


@pytest.mark.parametrize("point", ["evaluated", "before-commit"])
def test_a_driver_that_was_suspended_does_not_commit_beside_its_successor(pipeline: BucketPipeline, point: str) -> None:
    with pipeline.overtaken(point) as driver:
        pipeline.feed()
        pipeline.caught_up(driver)
        pipeline.drain(driver)
    assert pipeline.counted() == Counted()


@pytest.mark.parametrize("believes", [False, True], ids=["rebuilt", "control"])
def test_a_log_that_names_another_evaluation_is_not_believed(
    pipeline: BucketPipeline, tmp_path: Path, believes: bool
) -> None:
    """Control: with the log believed and the base not compared, the output is not that of one run."""
    counted = counted_behind_another_log(pipeline, tmp_path, believes=believes)
    assert (counted == Counted()) is not believes


def test_decisions_of_a_table_are_in_the_bucket_as_well(kafka: EmbeddedKafka, server: S3Server, tmp_path: Path) -> None:
    name = f"lake-{uuid.uuid4().hex[:8]}"
    lake = stateful_lake(kafka, tmp_path, "delta", name)
    lake.spec = in_bucket(lake.spec, server, f"state/{name}", login(tmp_path / "login"))
    for point in ("before-commit", "after-commit"):
        lake.killed_at(point)
    lake.completed()
    assert lake.counts() == lake.expected()
    assert server.files().get_file_info(pafs.FileSelector(f"{BUCKET}/state/{name}/decisions"))
    assert not list(lake.state.rglob("*"))


def test_deleted_state_halts_until_a_copy_of_the_objects_is_restored(pipeline: BucketPipeline) -> None:
    pipeline.drained()
    saved = f"{BUCKET}/saved/{pipeline.spec.name}"
    pipeline.copy(pipeline.prefix, saved)
    pipeline.files.delete_dir(pipeline.prefix)
    pipeline.feed(150)
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.STATE_LOST
    pipeline.copy(saved, pipeline.prefix)
    pipeline.drained()
    assert pipeline.counted() == Counted()


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damaged_objects_halt_until_the_loss_is_accepted(pipeline: BucketPipeline, damage: str) -> None:
    """The last changelog is cut off, or one before it is missing."""
    pipeline.spec = replace(pipeline.spec, transform=replace(pipeline.spec.transform, sql=COUNTS_BY_KEY))
    pipeline.drained()
    changelogs = [n for n in pipeline.names() if "/state/0/0/" in n and n.endswith(".changelog")]
    *_, middle, last = sorted(changelogs, key=lambda n: int(n.rpartition("/")[2].partition("_")[0]))
    if damage == "missing":
        pipeline.files.delete_file(f"{pipeline.prefix}/{middle}")
    else:
        with pipeline.files.open_input_file(f"{pipeline.prefix}/{last}") as file:
            content = file.read()
        with pipeline.files.open_output_stream(f"{pipeline.prefix}/{last}") as file:
            file.write(content[: len(content) // 2])
    pipeline.feed(100)
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.HALTED, job.job.failure()
        failure = job.job.failure()
    assert failure is not None
    assert failure.reason is Reason.STATE_LOST
    pipeline.spec = replace(pipeline.spec, accepted_state_loss=failure.fingerprint)
    pipeline.drained()
    counts = {record.key: int(record.value or b"") for record in read(pipeline.servers, pipeline.sink)}
    assert counts == {f"p{p}".encode(): 100 for p in range(pipeline.partitions)}


def test_snapshots_of_the_state_are_stored_and_loaded(pipeline: BucketPipeline) -> None:
    """They are sent by another client of S3 than changelogs are: the asynchronous one."""
    often = {
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
        "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    }
    pipeline.spec = replace(pipeline.spec, spark={**pipeline.spec.spark, **often})

    def versions(ending: str) -> set[int]:
        """Versions of the state of partition 0 with such a file."""
        names = [name.rpartition("/")[2] for name in pipeline.names() if "/state/0/0/" in name]
        return {int(name.partition("_")[0]) for name in names if name.endswith(ending) and name[0].isdigit()}

    with pipeline.life() as job:
        for _ in range(6):
            pipeline.feed(100)
            pipeline.caught_up(job)
        wait_until(lambda: versions(".zip"), "a snapshot is in the bucket")
        job.job.kill()
    snapshot = max(versions(".zip"))
    for name in pipeline.names():  # what is before the snapshot cannot be loaded any more
        version = name.rpartition("/")[2].partition("_")[0]
        if "/state/0/0/" in name and name.endswith(".changelog") and version.isdigit() and int(version) <= snapshot:
            pipeline.files.delete_file(f"{pipeline.prefix}/{name}")
    pipeline.feed(100)
    pipeline.drained()
    assert pipeline.counted() == Counted()


def test_an_outage_of_the_server_is_named_and_loses_and_repeats_nothing(pipeline: BucketPipeline) -> None:
    with pipeline.life() as job:
        pipeline.caught_up(job)
        with pipeline.server.killed():
            pipeline.feed()
            job.until(lambda p: (p["lastError"] or {}).get("reason") == Reason.STATE_UNREACHABLE, "it is named")
        pipeline.caught_up(job)
        pipeline.drain(job)
    assert pipeline.counted() == Counted()


def test_a_login_that_may_not_write_is_named(pipeline: BucketPipeline, tmp_path: Path) -> None:
    login(tmp_path / "login", READER)
    with pipeline.life() as job:
        job.until(lambda p: (p["lastError"] or {}).get("reason") == Reason.STATE_UNREACHABLE, "it is named")
        assert SECRET not in job.job.log.read_text()
        login(tmp_path / "login")


def test_a_login_that_is_refused_ends_the_job_before_it_takes_the_pipeline(
    pipeline: BucketPipeline, tmp_path: Path
) -> None:
    login(tmp_path / "login", secret="wrong-horse")
    with pipeline.life() as job:
        assert job.job.wait(WAIT) == ExitCode.UNAVAILABLE
        failure = job.job.failure()
        assert "owns" not in job.job.log.read_text()
    assert failure is not None
    assert failure.reason is Reason.STATE_UNREACHABLE
    assert "SignatureDoesNotMatch" in failure.message


@pytest.mark.parametrize(
    ("bucket", "login_of", "message"),
    [
        (
            "another",
            (ADMIN, ADMIN_SECRET),
            "listing s3a://another/p: The specified bucket does not exist (NoSuchBucket)",
        ),
        ("another", (KEY, SECRET), "listing s3a://another/p: Access Denied (AccessDenied)"),
        (BUCKET, (KEY, "wrong-horse"), "SignatureDoesNotMatch"),
        (BUCKET, ("unknown", SECRET), "InvalidAccessKeyId"),
    ],
    ids=["bucket", "permission", "secret", "key"],
)
def test_a_bucket_that_cannot_be_used_is_named_before_spark_starts(
    server: S3Server, tmp_path: Path, bucket: str, login_of: tuple[str, str], message: str
) -> None:
    with pytest.raises(JobError) as caught:
        state_bucket.check(settings(f"s3a://{bucket}/p", server.endpoint, login(tmp_path / "login", *login_of)))
    assert caught.value.reason is Reason.STATE_UNREACHABLE
    assert message in caught.value.message
    assert login_of[1] not in caught.value.message
    assert "\n" not in caught.value.message


def test_a_bucket_that_can_be_used_passes_the_check(server: S3Server, tmp_path: Path) -> None:
    state_bucket.check(settings(f"s3a://{BUCKET}/p", server.endpoint, login(tmp_path / "login")))


def test_a_server_out_of_reach_and_a_missing_login_are_named(server: S3Server, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with pytest.raises(JobError) as caught:
        state_bucket.check(settings(f"s3a://{BUCKET}/p", f"http://127.0.0.1:{port}", login(tmp_path / "login")))
    assert caught.value.reason is Reason.STATE_UNREACHABLE
    with pytest.raises(
        JobError, match=r"the username of checkpoint\.s3 cannot be read from /nowhere/username"
    ) as of_login:
        state_bucket.check(settings(f"s3a://{BUCKET}/p", server.endpoint, "/nowhere"))
    assert of_login.value.reason is Reason.STATE_UNREACHABLE


def settings(uri: str, endpoint: str, credentials: str) -> StateSettings:
    return StateSettings(1, uri, "append", None, None, 1000, endpoint, "us-east-1", credentials)
