"""--dry-run: the API server or the brokers judge the change, and nothing is changed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ackwright.cli import main, run
from ackwright_stream.jobspec import ExitCode
from unit.clients.kubeconfig import kubeconfig
from unit.fake_kafka import FakeKafka

EXAMPLE = str(Path(__file__).parents[3] / "examples" / "delayed-flights-exactly-once.yaml")
OLD = "pMwI-OlDoLdOlD_oLdOl-A"
STALLED = {
    **{"type": "Stalled", "status": "True", "reason": "TopicReplaced", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    "message": f"topic flights was deleted and recreated (id new, before {OLD})",
}
TOPIC = {
    "name": "flights",
    "id": OLD,
    "partitions": 1,
    "replicationFactor": 3,
    "minInsyncReplicas": 2,
    "inSyncReplicas": 3,
}
PIPELINE = {
    "metadata": {"name": "p", "namespace": "ops", "generation": 1},
    "spec": {"guarantee": "exactly-once"},
    "status": {
        **{"conditions": [STALLED], "topics": [TOPIC]},
        "lostTopics": [{"name": "flights", "id": OLD, "currentId": "new"}],
    },
}
DRIVER = {
    "metadata": {"name": "p", "namespace": "ops", "labels": {}},
    "spec": {
        "template": {
            "spec": {
                "securityContext": {},
                "volumes": [],
                "containers": [
                    {"name": "driver", "image": "i", "args": ["driver", "--jobspec", "/job.json"], "volumeMounts": []}
                ],
            }
        }
    },
}


class Server(ThreadingHTTPServer):
    """An API server with one pipeline. writes: method, path with query, body."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.writes: list[tuple[str, str, Any]] = []
        self.options: list[str] = []  # of a command line that connects to it


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _any(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"null")
        if self.command != "GET":
            self.server.writes.append((self.command, self.path, body))
        resource: dict[str, Any] = DRIVER if "/statefulsets/" in self.path else PIPELINE
        text = json.dumps(
            resource | ({"metadata": resource["metadata"] | {"generation": 2}} if self.command == "PATCH" else {})
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PATCH = _any

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as api_server:
        threading.Thread(target=api_server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        monkeypatch.setenv("KUBECONFIG", "")
        address = f"http://127.0.0.1:{api_server.server_port}"
        api_server.options = ["-n", "ops", "--kubeconfig", kubeconfig(tmp_path, address)]
        yield api_server
        api_server.shutdown()


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["suspend", "p"], "p would be suspended (dry run)\n"),
        (["resume", "p"], "p would be resumed (dry run)\n"),
        (["accept-topic", "p", "flights"], f"the loss of topic flights (id {OLD}) would be accepted (dry run)\n"),
        (["audit", "p"], "would be created in namespace ops (dry run)\n"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_the_api_server_judges_and_changes_nothing(
    server: Server, command: list[str], output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.invoke([*command, "--dry-run", *server.options]) == ExitCode.OK
    assert capsys.readouterr().out.endswith(output)
    ((_, path, _),) = server.writes
    assert "dryRun=All" in path


def test_control_without_it_the_change_is_made(server: Server) -> None:
    assert main.invoke(["suspend", "p", "--no-wait", *server.options]) == ExitCode.OK
    ((_, path, _),) = server.writes
    assert "dryRun" not in path


def test_run_asks_the_brokers_and_starts_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = FakeKafka()
    kafka.create_topic("flights", 6, 3, {"min.insync.replicas": "1"})
    monkeypatch.setattr(run, "KafkaClient", lambda *_: kafka)
    monkeypatch.setattr(run, "Job", lambda *_: pytest.fail("a job was started"))
    before = dict(kafka.existing)
    assert main.invoke(["run", "-f", EXAMPLE, "--dry-run"]) == ExitCode.OK
    assert kafka.existing == before
    out = capsys.readouterr().out
    assert "topic delayed-flights-exactly-once would be created (dry run)" in out
    assert "topic flights: min.insync.replicas is 1, planned is 2" in out
    assert out.endswith("the job would be started (dry run)\n")


def test_a_dry_run_of_a_stateful_pipeline_needs_no_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = FakeKafka()
    monkeypatch.setattr(run, "KafkaClient", lambda *_: kafka)
    stateful = str(Path(EXAMPLE).parent / "windowed-counts" / "pipeline.yaml")
    assert main.invoke(["run", "-f", stateful, "--dry-run"]) == ExitCode.OK
    assert capsys.readouterr().out.endswith("the job would be started (dry run)\n")
    # Control: a run would have to keep the state.
    assert main.invoke(["run", "-f", stateful]) == ExitCode.INVALID
    assert "give --dir DIRECTORY" in capsys.readouterr().err


def test_run_says_what_would_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "KafkaClient", lambda *_: FakeKafka(brokers=1))
    assert main.invoke(["run", "-f", EXAMPLE, "--dry-run"]) == ExitCode.UNAVAILABLE


@pytest.mark.parametrize(
    "command", [["run", "-f", EXAMPLE, "--embedded"], ["audit", "-f", EXAMPLE]], ids=lambda c: c[0]
)
def test_what_would_contradict_it_is_wrong_usage(command: list[str]) -> None:
    assert main.invoke([*command, "--dry-run"]) == ExitCode.INVALID
