"""State in a bucket: its login, the files that the driver writes there itself, and how its errors are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from ackwright_stream import state_bucket
from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, StateSettings
from ackwright_stream.sinks.staged.decisions import DecisionFiles
from ackwright_stream.state_bucket import StateBucket, check, login_settings

STATE = StateSettings(1, "s3a://lake/state/p", "append", None, None, 1000, "http://minio:9000", "eu", None)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The bucket's content, in memory."""
    created = MemoryStore()
    monkeypatch.setattr(state_bucket, "store_of", lambda *_: created)
    return created


def mounted(directory: Path) -> StateSettings:
    (directory / "username").write_text("key\n")
    (directory / "password").write_text("right-horse\n")
    return replace(STATE, credentials=str(directory))


def test_the_login_is_for_the_bucket_alone(tmp_path: Path) -> None:
    of_bucket = "fs.s3a.bucket.lake"
    expected = {f"{of_bucket}.access.key": "key", f"{of_bucket}.secret.key": "right-horse"}
    assert login_settings(mounted(tmp_path)) == expected


def test_a_directory_and_the_identity_of_the_pod_have_no_login(tmp_path: Path) -> None:
    assert login_settings(STATE) == {}
    assert login_settings(replace(mounted(tmp_path), checkpoint="/state")) == {}


def test_a_login_that_is_not_mounted_is_named() -> None:
    for read in (login_settings, StateBucket, check):
        with pytest.raises(JobError, match=r"the username of checkpoint\.s3 cannot be read from /nowhere") as caught:
            read(replace(STATE, credentials="/nowhere"))
        assert caught.value.reason is Reason.STATE_UNREACHABLE


def test_the_location_is_below_the_prefix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    locations = []
    monkeypatch.setattr(state_bucket, "store_of", lambda s3, _: locations.append(s3))
    StateBucket(mounted(tmp_path))
    [s3] = locations
    assert (s3.bucket, s3.prefix, s3.endpoint, s3.region) == ("lake", "state/p", "http://minio:9000", "eu")
    assert (s3.access_key, s3.secret_key) == ("key", "right-horse")


def test_files_are_written_read_and_removed(store: MemoryStore) -> None:
    bucket = StateBucket(STATE)
    bucket.check()
    bucket.write("decisions/one.json", b"1")
    bucket.write("decisions/one.json", b"2")
    bucket.check()
    assert bucket.read("decisions/one.json") == b"2"
    for _ in range(2):
        bucket.remove("decisions/one.json")
        assert bucket.read("decisions/one.json") is None


def test_decisions_are_beside_the_state(store: MemoryStore) -> None:
    files = DecisionFiles(STATE)
    name = files.write("one")
    assert DecisionFiles(STATE).read(name) == "one"
    [file] = [str(entry["path"]) for part in store.list() for entry in part]
    assert file == f"decisions/{name:014x}.json"
    store.put(file, b"damaged")
    assert files.read(name) is None
    files.remove(name)
    assert list(store.list()) == []


def test_an_error_of_the_client_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> MemoryStore:
        raise OSError("no route\nto host")

    monkeypatch.setattr(state_bucket, "store_of", refuse)
    with pytest.raises(JobError, match=r"no route to host; check checkpoint\.uri") as caught:
        check(STATE)
    assert caught.value.reason is Reason.STATE_UNREACHABLE


def test_the_answer_of_the_server_is_named_without_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> MemoryStore:
        raise OSError(
            "GET http://minio:9000/lake?list-type=2 - 403 Forbidden: <Error><Code>AccessDenied</Code>"
            "<Message>Access Denied.</Message><Resource>/lake</Resource></Error>"
        )

    monkeypatch.setattr(state_bucket, "store_of", refuse)
    with pytest.raises(JobError, match=r"connecting to s3a://lake/state/p: Access Denied \(AccessDenied\); check"):
        check(STATE)


def test_control_state_in_a_directory_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_bucket, "StateBucket", None)
    check(replace(STATE, checkpoint="/state"))
    check(None)
