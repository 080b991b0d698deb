"""How a job ended, on its way to the process that started it: through a file, on stderr, in a termination message."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream import jobspec
from ackwright_stream.jobspec import ExitCode, Reason
from ackwright_stream.reports import Ending, Failure, LostTopic, report_ending
from minimal_job import minimal_job
from waiting import ANSWER

FAILED = Ending(3, Failure(Reason.DATA_EXPIRED, 'gone: "x"'))
MOVED = Failure(Reason.POSITIONS_MOVED, "another program", fingerprint="0123456789ab")
RECREATED = Failure(Reason.TOPIC_REPLACED, "topic in", lost_topic=LostTopic("in", "pMwI-OlD", "qNwI_NeW"))
JOB = minimal_job()


@pytest.mark.parametrize("ending", [Ending(0), Ending(7), FAILED, Ending(3, MOVED), Ending(3, RECREATED)])
def test_an_ending_is_read_as_it_was_written(ending: Ending) -> None:
    assert Ending.from_json(ending.to_json()) == ending


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ackwright: DataExpired: gone",
        "3",
        "{}",
        '{"exitCode": 3}',
        '{"exitCode": 3, "failure": {"reason": "no such reason", "message": "x"}}',
        '{"exitCode": 3, "failure": "DataExpired: gone"}',
        FAILED.to_json()[:-5],
        "[" * 4096,
    ],
)
def test_any_other_text_is_no_ending(text: str) -> None:
    assert Ending.from_json(text) is None


def test_what_a_person_may_accept_has_its_own_fields() -> None:
    assert json.loads(Ending(3, MOVED).to_json())["failure"] == {
        **{"reason": "PositionsMoved", "message": "another program"},
        "fingerprint": "0123456789ab",
    }
    assert json.loads(Ending(3, RECREATED).to_json())["failure"] == {
        **{"reason": "TopicReplaced", "message": "topic in"},
        "lostTopic": {"name": "in", "id": "pMwI-OlD", "currentId": "qNwI_NeW"},
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},  # of an earlier release
        {"fingerprint": None, "lostTopic": None},
        {"fingerprint": "0123456789ab; rm", "lostTopic": {}},
        {"fingerprint": "a" * 65, "lostTopic": {"name": "in", "id": "old", "currentId": "x" * 65}},
        {"fingerprint": 7, "lostTopic": {"name": "i" * 250, "id": "old", "currentId": "now"}},
        {"fingerprint": ["0123456789ab"], "lostTopic": {"name": "in", "id": "old", "currentId": None}},
        {"lostTopic": "in"},
        {"lostTopic": {"name": "in\nout", "id": "old", "currentId": "now"}},
    ],
)
def test_a_failure_without_them_or_with_other_values_is_a_failure(fields: dict[str, object]) -> None:
    failure = {"reason": "TopicReplaced", "message": "topic in", **fields}
    ending = Ending.from_json(json.dumps({"exitCode": 3, "failure": failure}))
    assert ending == Ending(3, Failure(Reason.TOPIC_REPLACED, "topic in"))


@pytest.mark.parametrize("value", ["PositionsMoved: moved", [], 7, {}, {"reason": "no such reason", "message": "x"}])
def test_anything_else_is_no_failure(value: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Failure.of_json(value)


def test_a_long_sentence_is_cut_and_not_what_a_person_may_accept() -> None:
    for failure in (MOVED, RECREATED):
        text = Ending(3, replace(failure, message="é" * 5000)).to_json()
        ending = Ending.from_json(text)
        assert len(text) <= 4096
        assert ending is not None
        assert ending.failure is not None
        assert replace(ending.failure, message=failure.message) == failure


@pytest.mark.parametrize("character", ["x", "é", "😀", "\n", "\x01", '"'])
@pytest.mark.parametrize("length", [100, 1000, 5000, 100_000])
def test_it_fits_a_termination_message_however_long_the_sentence_is(character: str, length: int) -> None:
    text = Ending(3, Failure(Reason.BATCH_FAILED, length * character)).to_json()
    assert len(text.encode()) <= 4096
    ending = Ending.from_json(text)
    assert ending is not None
    assert ending.failure is not None
    assert ending.failure.message.startswith(min(length, 100) * character)


def test_it_goes_to_the_file_and_for_people_to_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "termination-log"
    file.write_text("")
    inode = file.stat().st_ino
    report_ending(FAILED, file)
    assert Ending.from_json(file.read_text()) == FAILED
    assert file.stat().st_ino == inode, "Kubernetes mounts the file, so it cannot be replaced"
    assert capsys.readouterr().err == 'ackwright: DataExpired: gone: "x"\n'


def test_without_a_file_or_a_failure_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report_ending(Ending(0), None)
    assert capsys.readouterr().err == ""
    report_ending(FAILED, tmp_path / "nowhere" / "file")
    assert capsys.readouterr().err.splitlines()[-1] == 'ackwright: DataExpired: gone: "x"'


@pytest.mark.parametrize("module", ["ackwright_stream", "ackwright_stream.audit"])
@pytest.mark.parametrize("version", [99, None])
def test_a_jobspec_that_is_wrong_is_reported_by_job_and_audit(tmp_path: Path, module: str, version: int | None) -> None:
    file, written = tmp_path / "job.json", tmp_path / "ending"
    if version:
        file.write_text(json.dumps({**json.loads(jobspec.to_json(JOB)), "version": version}))
    argv = [sys.executable, "-m", module, "--jobspec", str(file), "--ending", str(written)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER, check=False)
    assert done.returncode == ExitCode.INVALID
    ending = Ending.from_json(written.read_text())
    assert ending is not None
    assert ending.exit_code == ExitCode.INVALID
    assert ending.failure is not None
    assert ending.failure.reason is Reason.INVALID_SPEC
    assert str(file) in ending.failure.message
    assert done.stderr.splitlines()[-1] == f"ackwright: {ending.failure}"


def test_a_reason_that_a_later_release_has_added_is_unexpected() -> None:
    read = Failure.of_json({"reason": "PlanetUnreachable", "message": "it is behind the sun"})
    assert read == Failure(Reason.UNEXPECTED, "PlanetUnreachable: it is behind the sun")


@pytest.mark.parametrize("reason", ["", "red\ngreen", 7, None, "X" * 100])
def test_what_is_no_reason_is_no_failure(reason: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Failure.of_json({"reason": reason, "message": ""})


def test_progress_that_cannot_be_served_is_reported(tmp_path: Path) -> None:
    file, written = tmp_path / "job.json", tmp_path / "ending"
    file.write_text(jobspec.to_json(replace(JOB, progress_host="192.0.2.1")))  # TEST-NET-1, of no machine
    argv = [sys.executable, "-m", "ackwright_stream", "--jobspec", str(file), "--ending", str(written)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=ANSWER, check=False)
    assert done.returncode == ExitCode.INVALID
    value = json.loads(written.read_text())
    assert value["failure"]["reason"] == "InvalidSpec"
    assert "choose another port" in value["failure"]["message"]
