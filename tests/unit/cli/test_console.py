"""ackwright console: the command; tests/unit/console covers its server."""

from __future__ import annotations

import json
import os
import signal
import stat
import threading
from pathlib import Path

import pytest

from ackwright.cli import main, target
from ackwright.cli.target import Target
from ackwright_stream.jobspec import ExitCode
from unit.console import recorded
from unit.console.cluster_double import Cluster
from waiting import wait_until


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(target, "_connect", lambda namespace, *_: Target(cluster, namespace or "ops"))
    return cluster


def test_a_state_is_recorded_for_its_owner_and_not_overwritten(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "state.json"
    assert main.invoke(["console", "-n", "ops", "--record", str(file)]) == ExitCode.OK
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text())["title"] == "namespace ops"
    assert "1 pipeline;" in capsys.readouterr().out
    assert main.invoke(["console", "--record", str(file)]) == ExitCode.FAILED
    assert "choose another path after --record" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--state", "a", "--record", "b"], "give only one of them"),
        (["--state", "/nowhere/state.json"], "check the path after --state"),
    ],
)
def test_what_is_refused(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["console", *options]) == ExitCode.INVALID
    assert message in capsys.readouterr().err


def test_it_serves_until_it_is_interrupted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        wait_until(lambda: any(thread.name == "console" for thread in threading.enumerate()), "the server runs")
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert main.invoke(["console", "--state", str(recorded.write(tmp_path))]) == ExitCode.OK
    url, title = capsys.readouterr().out.splitlines()
    assert url.startswith("http://127.0.0.1:")
    assert title.startswith("state.json, recorded from a cluster of the tests")
