"""A failure of Maven leaves nothing in the cache. A stub replaces Maven."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ackwright.errors import AckwrightError
from ackwright.local import jars


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACKWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/mvn")
    return tmp_path


def replace_maven(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | int) -> None:
    """Replaces Maven by a stub that downloads one jar, then raises the exception or exits with the code."""

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (output,) = [a.partition("=")[2] for a in argv if a.startswith("-DoutputDirectory=")]
        Path(output, "a.jar").touch()
        if isinstance(outcome, BaseException):
            raise outcome
        return subprocess.CompletedProcess(argv, outcome, stdout="[ERROR] no route", stderr="")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("outcome", "error", "message"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (subprocess.TimeoutExpired("mvn", 900), AckwrightError, "Maven has not resolved the kafka jars in 900 s"),
        (1, AckwrightError, r"Maven could not resolve the kafka jars: \[ERROR\] no route"),
    ],
    ids=["interrupted", "late", "failed"],
)
def test_a_failure_leaves_no_incomplete_directory(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    outcome: BaseException | int,
    error: type[BaseException],
    message: str | None,
) -> None:
    replace_maven(monkeypatch, outcome)
    with pytest.raises(error, match=message):
        jars.directory("kafka")
    assert list(cache.iterdir()) == []


def test_only_the_jars_directory_is_left_in_the_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_maven(monkeypatch, 0)
    directory = jars.directory("kafka")
    assert list(cache.iterdir()) == [directory]
    assert [jar.name for jar in directory.iterdir()] == ["a.jar"]
