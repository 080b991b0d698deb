"""The console's server, over real connections: what it serves, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from ackwright.api.document import MAX_BYTES
from ackwright.console.server import HOST, Server, Views
from ackwright.console.source import JSON, Listing, RecordedSource
from ackwright.console.views import Details, Object, Remedies
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from unit.console import recorded

TOKEN = "a-token"
YAML = {"Content-Type": "application/yaml"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(RecordedSource(recorded.write(tmp_path_factory.mktemp("state"))), TOKEN) as running:
        yield running


def send(
    server: Server,
    path: str,
    method: str = "GET",
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[HTTPResponse, bytes]:
    """Sends a request for a path behind the token; for one that begins with / the path itself."""
    url = urlsplit(server.url)
    connection = HTTPConnection(str(url.hostname), url.port, timeout=30)
    connection.request(method, path if path.startswith("/") else url.path + path, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def read(server: Server, path: str) -> Any:
    answer, content = send(server, path)
    assert answer.status == 200, content
    return json.loads(content)


def plan(server: Server, path: str, text: bytes) -> Any:
    answer, content = send(server, path, "POST", text, YAML)
    assert answer.status == 200, content
    return json.loads(content)


def test_the_page_may_only_run_its_own_scripts(server: Server) -> None:
    answer, content = send(server, "")
    assert answer.status == 200
    assert b"<!doctype html>" in content
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"  # the address is a secret
    assert answer.headers["Cache-Control"] == "no-store"


def test_the_simulator_may_only_run_its_own_scripts(server: Server) -> None:
    answer, content = send(server, "simulator")
    assert b"<title>Delivery simulator" in content
    assert answer.headers["Content-Security-Policy"] != send(server, "")[0].headers["Content-Security-Policy"]


def test_all_pipelines_and_one(server: Server) -> None:
    state = read(server, "api/state")
    assert state["kind"] == "recorded"
    assert {r["name"] for r in state["pipelines"]} == set(recorded.PIPELINES)
    shown = read(server, "api/pipeline?namespace=ops&name=delayed-flights")
    assert shown["progress"]["batches"] == 1842
    assert len(shown["lanes"]) == 6
    assert send(server, "api/pipeline?namespace=ops&name=none")[0].status == 404


def test_an_unchanged_answer_is_not_sent_again(server: Server) -> None:
    answer, _ = send(server, "api/state")
    again, content = send(server, "api/state", headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status, content) == (304, b"")


def test_a_text_is_planned(server: Server) -> None:
    text = read(server, "api/pipeline?namespace=ops&name=delayed-flights")["yaml"].encode()
    path = "api/plan?namespace=ops&name=delayed-flights"
    assert plan(server, path, text)["edit"]["takes"] is None
    assert plan(server, "api/plan", b"a: b")["errors"]


PLAN, REBOUND = "api/plan", "http://rebound.example"


@pytest.mark.parametrize(
    ("status", "path", "headers"),
    [
        (404, "/", {}),
        (404, "/wrong/api/state", {}),
        (404, f"/{TOKEN}x/", {}),
        (403, "", {"Host": "rebound.example:80"}),
        (403, "", {"Host": ""}),
        (403, "api/state", {"Origin": REBOUND}),
        (403, "api/state", {"Origin": "null"}),
        (404, "api/other", {}),
        (404, "api/activity?after=x", {}),
    ],
)
def test_a_request_that_is_refused(server: Server, status: int, path: str, headers: dict[str, str]) -> None:
    assert send(server, path, headers=headers)[0].status == status


@pytest.mark.parametrize(
    ("status", "path", "body", "headers"),
    [
        (404, PLAN, b"a: b", {"Content-Type": "text/plain"}),  # a form of another site can send it
        (403, PLAN, b"a: b", {**YAML, "Origin": REBOUND}),
        (404, "api/state", b"", YAML),
        (400, PLAN, b"\xff", YAML),
        (413, PLAN, None, {**YAML, "Content-Length": str(MAX_BYTES + 1)}),
    ],
)
def test_a_text_that_is_refused(
    server: Server, status: int, path: str, body: bytes | None, headers: dict[str, str]
) -> None:
    assert send(server, path, "POST", body, headers)[0].status == status


def test_nothing_can_be_deleted(server: Server) -> None:
    assert send(server, "api/state", "DELETE")[0].status == 501


def test_control_the_right_host_and_origin_are_accepted(server: Server) -> None:
    origin = server.url.removesuffix(f"/{TOKEN}/")
    assert send(server, "api/state", headers={"Origin": origin})[0].status == 200
    port = urlsplit(server.url).port
    assert send(server, "api/state", headers={"Host": f"localhost:{port}"})[0].status == 200


def test_it_listens_on_loopback_only(server: Server) -> None:
    assert urlsplit(server.url).hostname == HOST == "127.0.0.1"


def test_a_port_in_use_is_an_error(server: Server) -> None:
    with pytest.raises(OSError, match="in use"):
        Server(Counting(), TOKEN, urlsplit(server.url).port or 0)


class Counting:
    """A source that counts reads, and fails on request."""

    kind, title, at = "cluster", "a cluster", None

    def __init__(self) -> None:
        self.reads = 0
        self.failure: AckwrightError | None = None

    def pipelines(self) -> Listing:
        return Listing([recorded.resource("stock")], problem="not current")

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        self.reads += 1
        if self.failure:
            raise self.failure
        return recorded.resource("stock"), Details()

    def activity(self, after: int) -> JSON | None:
        return None


def test_several_pages_share_a_read() -> None:
    source, now = Counting(), 100.0
    views = Views(source, Remedies(), clock=lambda: now)
    views.pipeline("shop", "stock")
    views.pipeline("shop", "stock")
    assert source.reads == 1
    now += 5
    views.pipeline("shop", "stock")
    assert source.reads == 2
    assert views.state()["problem"] == "not current"


class Unobserved(Counting):
    """A source whose pipeline was last observed years ago."""

    def details(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        resource = recorded.resource("delayed-flights")
        return {**resource, "status": {**resource["status"], "observedAt": "2020-01-01T00:00:00Z"}}, Details()

    def pipelines(self) -> Listing:
        read = self.details("", "")
        return Listing([read[0]] if read else [])


def test_a_pipeline_that_has_not_been_observed_for_long_needs_attention() -> None:
    source = Unobserved()
    views = Views(source, Remedies())
    [row] = views.state()["pipelines"]
    shown = views.pipeline("flights", "delayed-flights")
    assert shown is not None
    for view in (row, shown["row"]):
        assert (view["health"], view["ready"], view["met"], view["reason"]) == (
            *("attention", "Unknown", "Unknown"),
            "NotObserved",
        )
    assert {c["status"] for c in shown["conditions"]} == {"Unknown"}
    source.at = "2020-01-01T00:00:01Z"  # type: ignore[assignment]
    assert views.state()["pipelines"][0]["health"] == "ready", "the control: a recorded state is shown as it was"


def test_a_cluster_that_does_not_answer_is_reported_with_its_reason() -> None:
    source = Counting()
    source.failure = AckwrightError(Reason.KUBERNETES_UNREACHABLE, "no answer", "check the network")
    with Server(source, TOKEN) as running:
        answer, content = send(running, "api/pipeline?namespace=shop&name=stock")
    assert answer.status == 502
    assert json.loads(content) == {"reason": "KubernetesUnreachable", "message": "no answer; check the network"}


def test_a_recorded_state_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(AckwrightError, match="check the path after --state"):
        RecordedSource(tmp_path / "none.json")
    for text in ("{", "[]", '{"title": "x"}', '{"title": "x", "at": "", "resources": [{}]}'):
        file = tmp_path / "state.json"
        file.write_text(text)
        with pytest.raises(AckwrightError, match="no recorded state"):
            RecordedSource(file)


def test_a_pipeline_without_recorded_details_says_so(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"title": "x", "at": "", "resources": [recorded.resource("stock")]}))
    read_ = RecordedSource(file).details("shop", "stock")
    assert read_
    assert read_[1].missing
