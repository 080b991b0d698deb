"""Maven's failures leave nothing in the cache. A stub stands for Maven."""

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


def maven(monkeypatch: pytest.MonkeyPatch, end: BaseException | int) -> None:
    """Half of the jars come, then this happens."""

    def run(argv: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        (output,) = [a.partition("=")[2] for a in argv if a.startswith("-DoutputDirectory=")]
        Path(output, "a.jar").touch()
        if isinstance(end, BaseException):
            raise end
        return subprocess.CompletedProcess(argv, end, stdout="[ERROR] no route", stderr="")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("end", "raised", "said"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (subprocess.TimeoutExpired("mvn", 900), AckwrightError, "Maven has not resolved the kafka jars in 900 s"),
        (1, AckwrightError, r"Maven could not resolve the kafka jars: \[ERROR\] no route"),
    ],
    ids=["interrupted", "late", "failed"],
)
def test_nothing_half_filled_stays(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: BaseException | int,
    raised: type[BaseException],
    said: str | None,
) -> None:
    maven(monkeypatch, end)
    with pytest.raises(raised, match=said):
        jars.directory("kafka")
    assert list(cache.iterdir()) == []


def test_what_came_is_all_that_stays(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(monkeypatch, 0)
    found = jars.directory("kafka")
    assert list(cache.iterdir()) == [found]
    assert [jar.name for jar in found.iterdir()] == ["a.jar"]
