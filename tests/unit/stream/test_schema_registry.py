"""The client of a schema registry against servers that are none, that are busy, and that require a login.

tests/integration/delivery/test_avro.py has a real registry.
"""

from __future__ import annotations

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ackwright_stream import audit_registry, audit_schemas
from ackwright_stream.errors import JobError
from ackwright_stream.formats.registered import Unsupported, Writers, decoded_each, finder, registered_schemas
from ackwright_stream.jobspec import Format, Reason, SchemaRegistry
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

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

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


def test_a_line_break_at_the_end_of_a_secret_is_no_part_of_it(server: Server, tmp_path: Path) -> None:
    for name in ("username", "password"):
        (tmp_path / name).write_text(f"{name}\r\n")
    registry = replace(server.registry, credentials=str(tmp_path))
    client(registry).by_id(1)
    audit_registry.get(registry, "/schemas/ids/1")
    assert [request[2] for request in server.requests] == [
        f"Basic {base64.b64encode(b'username:password').decode()}"
    ] * 2


def test_an_id_that_confluents_registry_cannot_have_has_no_schema(server: Server) -> None:
    """It answers as for a path that does not exist, because its ids have 31 bits."""
    server.answers = [(404, b'{"error_code":404,"message":"HTTP 404 Not Found"}')]
    assert client(server.registry).by_id(2**31) is None
    assert audit_registry.get(server.registry, f"/schemas/ids/{2**31}") is None
    assert refused(server.registry).reason is Reason.REGISTRY_UNREACHABLE
    server.answers = [(404, b"<html>not here</html>")]
    with pytest.raises(JobError) as e:
        client(server.registry).by_id(2**31)
    assert e.value.reason is Reason.REGISTRY_UNREACHABLE


def test_an_id_counts_in_the_context_of_its_subject(server: Server) -> None:
    of_context, of_default = ":.staging:orders-value", "orders-value"
    for subject in (of_context, of_default):
        finder(server.registry, (), "AVRO", subject)([1])
        audit_schemas._decoder(server.registry, 1, Format.JSON_SCHEMA, None, subject)
    in_context, in_default = "/api/schemas/ids/1?subject=%3A.staging%3Aorders-value", "/api/schemas/ids/1"
    assert [path for _, path, _ in server.requests] == [in_context, in_context, in_default, in_default]


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_level_that_may_not_be_read_is_that_of_the_latest_version(server: Server, status: int) -> None:
    server.answers = [(status, b'{"error_code": 40301}'), (200, b'{"is_compatible": true}')]
    client(server.registry).require_compatible("s-value", "{}")
    assert [path.rpartition("/s-value")[2] for _, path, _ in server.requests] == [
        "?defaultToGlobal=true",
        "/versions/latest?verbose=true",
    ]


def test_a_schema_that_follows_its_first_record_is_returned(server: Server) -> None:
    server.answers = [NO_SCHEMA, NO_SCHEMA, SCHEMA]
    pauses: list[float] = []
    assert registered_schemas(client(server.registry), [1], "AVRO", pause=pauses.append) == {1: "{}"}
    assert len(pauses) == 2
    server.answers = [NO_SCHEMA]
    assert registered_schemas(client(server.registry), [1], "AVRO", pause=pauses.append) == {}


def test_ids_without_a_schema_wait_together(server: Server) -> None:
    """Garbage that begins with a zero byte has many ids. Each is requested once more after the last pause."""
    server.answers = [NO_SCHEMA]
    pauses: list[float] = []
    assert registered_schemas(client(server.registry), range(100), "AVRO", pause=pauses.append) == {}
    assert sum(pauses) == 1.5
    paths = [path for _, path, _ in server.requests]
    assert len(paths) == 100 + 3 * 10
    assert paths[-100:] == [f"/api/schemas/ids/{i}" for i in range(100)]


def test_many_ids_with_a_schema_do_not_wait(server: Server) -> None:
    schemas = registered_schemas(client(server.registry), range(30), "AVRO", pause=lambda _: pytest.fail("a pause"))
    assert schemas == dict.fromkeys(range(30), "{}")
    assert len(server.requests) == 30


def test_the_ids_of_a_call_are_requested_together_and_those_without_a_schema_again_later() -> None:
    requests: list[list[int]] = []

    def find(ids: Sequence[int]) -> dict[int, str | Unsupported]:
        requests.append(list(ids))
        return {1: "one", 2: Unsupported("it is of type JSON, not AVRO")}

    def decode(value: bytes, schema_id: int, schema: str) -> tuple[str, None]:
        return f"{schema} {value[-1:].decode()}", None

    writers = Writers(find, str.upper)
    values = pa.array([struct.pack(">bI", 0, i) + b"x" for i in (3, 1, 2, 3)] + [None, b"?"])
    records, problems = decoded_each(values, writers, decode)
    assert records == [None, "ONE x", None, None, None, None]
    assert problems == [
        "the registry has no schema 3",
        None,
        "its schema 2 cannot be used: it is of type JSON, not AVRO",
        "the registry has no schema 3",
        None,
        "it has 1 bytes and no schema id",
    ]
    decoded_each(values, writers, decode)
    assert requests == [[1, 2, 3], [2, 3]]


def test_schemas_that_cannot_be_read(server: Server) -> None:
    server.answers = [(200, json.dumps({"schema": "{}", "references": [{"name": "x"}]}).encode())]
    with pytest.raises(JobError) as e:
        registered_schemas(client(server.registry), [1], "AVRO")
    assert e.value.reason is Reason.SCHEMA_INCOMPATIBLE
    server.answers = [(200, json.dumps({"schema": "{}", "schemaType": "JSON"}).encode())]
    reason = registered_schemas(client(server.registry), [1], "AVRO")[1]
    assert isinstance(reason, Unsupported)
    assert "of type JSON" in str(reason)
