"""The client of a schema registry against servers that are none, that are busy, and that require a login.

tests/integration/delivery/test_avro.py has a real registry.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ackwright_stream.errors import JobError
from ackwright_stream.formats.registered import Unsupported, find_schema
from ackwright_stream.jobspec import Reason, SchemaRegistry
from ackwright_stream.schema_registry import RegistryClient

Answers = list[tuple[int, bytes]]
NO_SCHEMA = (404, json.dumps({"error_code": 40403, "message": "Schema not result"}).encode())
SCHEMA = (200, json.dumps({"schema": "{}"}).encode())


class Server:
    """Gives its answers one after the other, the last one forever, and records the requests."""

    def __init__(self) -> None:
        self.answers: Answers = [SCHEMA]
        self.requests: list[tuple[str, str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append((self.command, self.path, self.headers["Authorization"]))
                status, body = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.registry = SchemaRegistry(f"http://127.0.0.1:{self.http.server_port}/api", None, None, 3_000)


@pytest.fixture
def server() -> Iterator[Server]:
    result = Server()
    threading.Thread(target=result.http.serve_forever, args=(0.01,), daemon=True).start()
    yield result
    result.http.shutdown()
    result.http.server_close()


def client(registry: SchemaRegistry, pause: Callable[[float], object] = lambda _: None) -> RegistryClient:
    return RegistryClient(registry, pause)


def refused(registry: SchemaRegistry) -> JobError:
    with pytest.raises(JobError) as e:
        client(registry).by_id(1)
    return e.value


def test_only_the_registrys_own_answer_means_that_there_is_no_schema(server: Server) -> None:
    server.answers = [NO_SCHEMA]
    assert client(server.registry).by_id(1) is None
    assert server.requests[0][:2] == ("GET", "/api/schemas/ids/1")


@pytest.mark.parametrize(
    "answer", [(404, b"<html>not here</html>"), (404, b'{"detail": "x"}'), (200, b"hello"), (302, b"")]
)
def test_another_servers_answer_is_no_answer(server: Server, answer: tuple[int, bytes]) -> None:
    """A proxy's page must not make records malformed, which would drop them."""
    server.answers = [answer]
    error = refused(server.registry)
    assert error.reason is Reason.REGISTRY_UNREACHABLE
    assert "answers as no registry does" in error.message
    assert len(server.requests) == 1, "a redirect is not followed: the login would go with it"


def test_a_busy_server_is_asked_again(server: Server) -> None:
    server.answers = [(503, b""), (429, b""), (500, b'{"error_code": 50001}'), SCHEMA]
    result = client(server.registry).by_id(1)
    assert result is not None
    assert result.type == "AVRO"
    assert len(server.requests) == 4


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_stays_down_fails_in_time(server: Server, status: int) -> None:
    server.answers = [(status, b"")]
    error = refused(replace(server.registry, timeout_ms=150))
    assert error.reason is Reason.REGISTRY_UNREACHABLE
    assert "does not answer" in error.message
    assert refused(SchemaRegistry("http://127.0.0.1:1", None, None, 100)).reason is Reason.REGISTRY_UNREACHABLE


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_login_is_not_repeated(server: Server, status: int) -> None:
    server.answers = [(status, b"")]
    assert refused(server.registry).reason is Reason.REGISTRY_LOGIN_REFUSED
    assert len(server.requests) == 1


def test_the_login_is_read_from_its_files_each_time(server: Server, tmp_path: Path) -> None:
    (tmp_path / "username").write_text("me")
    missing = replace(server.registry, credentials=str(tmp_path))
    assert "password of the schema registry" in refused(missing).message
    reader = client(missing)
    for password in ("right", "other"):
        (tmp_path / "password").write_text(password)
        reader.by_id(1)
        assert server.requests[-1][2] == f"Basic {base64.b64encode(f'me:{password}'.encode()).decode()}"


def test_a_ca_that_is_missing(server: Server, tmp_path: Path) -> None:
    registry = replace(server.registry, url="https://127.0.0.1:1", ca=str(tmp_path / "ca.crt"))
    assert refused(registry).reason is Reason.REGISTRY_LOGIN_REFUSED


def test_a_schema_that_follows_its_first_record_is_returned(server: Server) -> None:
    server.answers = [NO_SCHEMA, NO_SCHEMA, SCHEMA]
    pauses: list[float] = []
    assert find_schema(client(server.registry), 1, "AVRO", pauses.append) == "{}"
    assert len(pauses) == 2
    server.answers = [NO_SCHEMA]
    assert find_schema(client(server.registry), 1, "AVRO", pauses.append) is None


def test_schemas_that_cannot_be_read(server: Server) -> None:
    server.answers = [(200, json.dumps({"schema": "{}", "references": [{"name": "x"}]}).encode())]
    with pytest.raises(JobError) as e:
        find_schema(client(server.registry), 1, "AVRO")
    assert e.value.reason is Reason.SCHEMA_INCOMPATIBLE
    server.answers = [(200, json.dumps({"schema": "{}", "schemaType": "JSON"}).encode())]
    with pytest.raises(Unsupported, match="of type JSON"):
        find_schema(client(server.registry), 1, "AVRO")
