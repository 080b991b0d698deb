"""Shell completion: the scripts, and the completions that shells receive."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from ackwright.cli import main, pipeline_names
from ackwright_stream.jobspec import ExitCode
from unit.clients.kubeconfig import kubeconfig
from waiting import ANSWER


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_can_parse_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["completion", shell]) == ExitCode.OK
    script = capsys.readouterr().out
    assert "_ACKWRIGHT_COMPLETE" in script
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=script, text=True, check=True, timeout=20)


def complete(*words: str) -> set[str]:
    """The completions of the last word."""
    items = ShellComplete(main.cli, {}, "ackwright", "_ACKWRIGHT_COMPLETE").get_completions(list(words[:-1]), words[-1])
    return {item.value for item in items}


def test_completing_commands_imports_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    assert complete("su") == {"suspend", "support-bundle"}
    assert complete("") == set(main.COMMANDS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--ver",), {"--verbose", "--version"}),
        (("plan", "--ag"), {"--against"}),
        (("plan", "-o", "j"), {"json"}),
        (("completion", "z"), {"zsh"}),
    ],
)
def test_options_and_their_values_are_completed(words: tuple[str, ...], expected: set[str]) -> None:
    assert complete(*words) == expected


def test_bash_receives_completions_in_its_format() -> None:
    environment = {
        **os.environ,
        "_ACKWRIGHT_COMPLETE": "bash_complete",
        "COMP_WORDS": "ackwright sta",
        "COMP_CWORD": "1",
    }
    argv = [sys.executable, "-c", "from ackwright.cli.main import main; main()"]
    completed = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True, timeout=ANSWER)
    assert completed.stdout.split() == ["plain,status"]


class _Pipelines(BaseHTTPRequestHandler):
    """Two pipelines in namespace shop, and none elsewhere."""

    def do_GET(self) -> None:
        names = ["orders", "payments"] if "/namespaces/shop/deliverypipelines" in self.path else []
        body = json.dumps({"items": [{"metadata": {"name": name}} for name in names]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[str]:
    """A kubeconfig for an API server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pipelines) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
        server.shutdown()


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a pipeline, another object and a text that is not YAML."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.yaml").write_text("kind: DeliveryPipeline\nmetadata: {name: local}\n")
    (files / "b.yml").write_text("kind: Pod\nmetadata: {name: pod}\n")
    (files / "c.yaml").write_text("a: [\n")
    monkeypatch.chdir(files)
    return files


NAMING = (
    "status",
    "logs",
    "suspend",
    "resume",
    "audit",
    "accept-topic",
    "accept-positions",
    "accept-state-loss",
    "support-bundle",
)


@pytest.mark.parametrize("command", NAMING)
def test_names_of_pipelines_are_those_in_the_namespace(
    command: str, cluster: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_names, "TIME_LIMIT_S", 30.0)
    options = (command, "--kubeconfig", cluster)
    assert complete(*options, "-n", "shop", "") == {"orders", "payments"}
    assert complete(*options, "-n", "shop", "pay") == {"payments"}
    assert complete(*options, "-n", "other", "") == set()


def test_without_a_cluster_they_are_those_in_the_files_of_the_directory(directory: Path) -> None:
    missing = str(directory / "missing")
    assert complete("status", "--kubeconfig", missing, "") == {"local"}
    assert complete("status", "--kubeconfig", missing, "x") == set()


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_names, "TIME_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = kubeconfig(tmp_path, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert complete("status", "--kubeconfig", config, "") == {"local"}
