"""The Kubernetes client against a small HTTP server: the requests of each call, and every way in which it fails."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import pytest
from urllib3 import Retry
from urllib3.exceptions import ProtocolError, ReadTimeoutError

from ackwright.clients import kubernetes as kubernetes_client
from ackwright.clients.event_streams import EventStreams
from ackwright.clients.fence import Fence, Fenced
from ackwright.clients.kubernetes import ApiError, Kubernetes, connect, path
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason
from unit.clients.kubeconfig import kubeconfig

OBJECT: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ops"}}
AT = "/api/v1/namespaces/ops/configmaps/c"


class Server(ThreadingHTTPServer):
    """Returns the same status, headers and body to every request.

    `breaks` closes the connection before the response or amid it.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reset()

    def reset(self) -> None:
        self.status, self.body = 200, json.dumps(OBJECT).encode()
        self.headers: dict[str, str] = {}
        self.before: list[bytes] = []  # bodies of the first responses, each sent once
        self.breaks: str | None = None
        self.requests: list[tuple[str, str, str, Any]] = []  # method, path and query, content type, body


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(
            (self.command, self.path, self.headers.get("Content-Type", ""), json.loads(body or b"null"))
        )
        if self.server.breaks == "before":
            self.close_connection = True
            return
        answer = self.server.before.pop(0) if self.server.before else self.server.body
        self.send_response(self.server.status)
        more = 10 if self.server.breaks == "amid" else 0
        for name, value in {"Content-Length": str(len(answer) + more), **self.server.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = _any

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Kubernetes]]:
    with Server() as result:
        threading.Thread(target=result.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield result, connect(kubeconfig(tmp_path_factory.mktemp("kube"), f"http://127.0.0.1:{result.server_port}"))
        result.shutdown()


@pytest.fixture
def server(both: tuple[Server, Kubernetes]) -> Server:
    both[0].reset()
    return both[0]


@pytest.fixture
def kubernetes(both: tuple[Server, Kubernetes]) -> Kubernetes:
    return both[1]


CALLS: dict[str, Callable[[Kubernetes], Any]] = {
    "get": lambda k: k.get("v1", "ConfigMap", "ops", "c"),
    "objects": lambda k: k.objects("v1", "ConfigMap", "ops"),
    "apply": lambda k: k.apply(OBJECT),
    "create": lambda k: k.create(OBJECT),
    "merge": lambda k: k.merge("v1", "ConfigMap", "ops", "c", {}),
    "put_status": lambda k: k.put_status(OBJECT),
    "delete": lambda k: k.delete("v1", "ConfigMap", "ops", "c"),
}


def failed(kubernetes: Kubernetes, call: str) -> ApiError:
    with pytest.raises(ApiError) as caught:
        CALLS[call](kubernetes)
    return caught.value


@pytest.mark.parametrize(
    ("api_version", "kind", "namespace", "name", "expected"),
    [
        ("v1", "Pod", "ops", "p-0", "/api/v1/namespaces/ops/pods/p-0"),
        ("v1", "Pod", None, None, "/api/v1/pods"),
        ("apps/v1", "StatefulSet", "ops", "p", "/apis/apps/v1/namespaces/ops/statefulsets/p"),
        ("policy/v1", "PodDisruptionBudget", "ops", None, "/apis/policy/v1/namespaces/ops/poddisruptionbudgets"),
        ("ackwright.io/v1alpha1", "DeliveryPipeline", None, None, "/apis/ackwright.io/v1alpha1/deliverypipelines"),
        ("v1", "Secret", "ops", "../../x", "/api/v1/namespaces/ops/secrets/..%2F..%2Fx"),
    ],
)
def test_the_path_of_each_resource(
    api_version: str, kind: str, namespace: str | None, name: str | None, expected: str
) -> None:
    assert path(api_version, kind, namespace, name) == expected


@pytest.mark.parametrize(
    ("call", "method", "where", "content"),
    [
        ("get", "GET", AT, ""),
        ("apply", "PATCH", f"{AT}?fieldManager=ackwright&force=true", "application/apply-patch+yaml"),
        ("create", "POST", "/api/v1/namespaces/ops/configmaps?fieldManager=ackwright", "application/json"),
        ("merge", "PATCH", f"{AT}?fieldManager=ackwright", "application/merge-patch+json"),
        ("put_status", "PUT", f"{AT}/status?fieldManager=ackwright", "application/json"),
        ("delete", "DELETE", AT, "application/json"),
    ],
)
def test_the_method_path_and_content_type_of_each_call(
    *, server: Server, kubernetes: Kubernetes, call: str, method: str, where: str, content: str
) -> None:
    CALLS[call](kubernetes)
    assert [r[:3] for r in server.requests] == [(method, where, content)]


def test_a_list_is_selected_by_labels_and_its_items_have_their_kind(server: Server, kubernetes: Kubernetes) -> None:
    server.body = json.dumps({"kind": "ConfigMapList", "items": [{"metadata": {"name": "c"}}]}).encode()
    result = kubernetes.objects("v1", "ConfigMap", None, {"a": "b", "c.io/d": "e"})
    assert result == [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]
    assert server.requests[0][1] == "/api/v1/configmaps?labelSelector=a%3Db%2Cc.io/d%3De&limit=500"


def test_deletions_have_preconditions_and_a_propagation_policy(server: Server, kubernetes: Kubernetes) -> None:
    kubernetes.delete("apps/v1", "StatefulSet", "ops", "p", uid="u")
    kubernetes.delete("v1", "Pod", "ops", "p-0", uid="v", grace_seconds=0)
    workload, pod = (r[3] for r in server.requests)
    assert workload["propagationPolicy"] == "Foreground", "the workload exists until its pods are gone"
    assert "gracePeriodSeconds" not in workload
    assert (workload["preconditions"], pod["preconditions"]) == ({"uid": "u"}, {"uid": "v"})
    assert pod["gracePeriodSeconds"] == 0
    assert "propagationPolicy" not in pod


def test_a_missing_object_is_none_and_its_deletion_succeeds(server: Server, kubernetes: Kubernetes) -> None:
    server.status = 404
    assert CALLS["get"](kubernetes) is None
    CALLS["delete"](kubernetes)
    assert failed(kubernetes, "apply").status == 404


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("status", "transient"),
    [
        (400, False),
        (401, False),
        (403, False),
        (409, True),
        (410, True),
        (422, False),
        (429, True),
        (500, True),
        (503, True),
    ],
)
def test_each_status_is_transient_or_permanent_and_never_retried(
    server: Server, kubernetes: Kubernetes, call: str, status: int, *, transient: bool
) -> None:
    server.status, server.body = status, json.dumps({"kind": "Status", "message": "this is why"}).encode()
    error = failed(kubernetes, call)
    assert (error.status, error.transient, error.retry_after) == (status, transient, None)
    assert error.reason is (Reason.KUBERNETES_UNREACHABLE if transient else Reason.KUBERNETES_REFUSED)
    assert "this is why" in error.message
    assert "configmaps" in error.message
    assert len(server.requests) == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("after", "seconds"), [("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)])
def test_too_many_requests_is_an_error_at_once_with_the_seconds_to_wait(
    server: Server, kubernetes: Kubernetes, call: str, after: str, seconds: float | None
) -> None:
    server.status, server.headers = 429, {"Retry-After": after}
    error = failed(kubernetes, call)
    assert (error.status, error.retry_after) == (429, seconds)
    assert len(server.requests) == 1


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("body", [b"<html>proxy</html>", b'{"kind": ', b"[]", b"null", b"\xff\xfe"])
def test_after_an_unreadable_answer_the_outcome_is_unknown(
    server: Server, kubernetes: Kubernetes, call: str, body: bytes
) -> None:
    server.body = body
    error = failed(kubernetes, call)
    assert (error.status, error.transient) == (None, True)
    assert "outcome is unknown" in error.message


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("breaks", ["before", "amid"])
@pytest.mark.parametrize("status", [200, 500])
def test_after_a_broken_connection_the_outcome_is_unknown(
    server: Server, kubernetes: Kubernetes, call: str, breaks: str, status: int
) -> None:
    server.breaks, server.status = breaks, status
    error = failed(kubernetes, call)
    assert (error.status, error.transient) == (None, True)
    assert "outcome is unknown" in error.message
    assert len(server.requests) <= 2, "the HTTP library may repeat a read once, and never a write"
    if call in ("apply", "create", "merge"):
        assert len(server.requests) == 1


@pytest.mark.parametrize("body", [b"", b"down", b"[1]", b'{"message": 7}', b"\xff" * 5000])
def test_a_failure_without_a_status_object_has_a_short_message(
    server: Server, kubernetes: Kubernetes, body: bytes
) -> None:
    server.status, server.body = 500, body
    assert len(failed(kubernetes, "get").message) < 400


def test_an_unreachable_server_is_an_error(tmp_path: Path) -> None:
    with Server() as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    error = failed(connect(kubeconfig(tmp_path, url)), "get")
    assert (error.status, error.reason) == (None, Reason.KUBERNETES_UNREACHABLE)


@pytest.mark.parametrize("content", [None, "", "{", "[]", "a", "kind: Config\ncurrent-context: nowhere", "\0"])
def test_without_a_usable_kubeconfig_the_error_names_the_remedy(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(AckwrightError, match="set KUBECONFIG") as caught:
        connect(str(file))
    assert caught.value.reason is Reason.KUBERNETES_UNREACHABLE


def events(*result: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(f).encode() + b"\n" for f in result)


Watched = Callable[..., list[tuple[str, dict[str, Any]]]]


@pytest.fixture(params=["one thread each", "one event loop"])
def watched(request: pytest.FixtureRequest, kubernetes: Kubernetes) -> Watched:
    """All events of a watch, by each of the two clients."""

    def streamed(*arguments: Any, **options: Any) -> list[tuple[str, dict[str, Any]]]:
        async def main() -> list[tuple[str, dict[str, Any]]]:
            streams = EventStreams(kubernetes)
            try:
                return [event async for event in streams.events(*arguments, **options)]
            finally:
                await streams.close()

        return asyncio.run(main())

    def blocking(*arguments: Any, **options: Any) -> list[tuple[str, dict[str, Any]]]:
        return list(kubernetes.watch(*arguments, **options))

    return blocking if request.param == "one thread each" else streamed


def test_a_watch_returns_the_changes_in_order(server: Server, watched: Watched) -> None:
    large = {**OBJECT, "data": {"a": "x" * 200_000}}
    sent = {**large, "metadata": {**large["metadata"], "managedFields": [{}]}}
    server.body = events({"type": "ADDED", "object": sent}, {"type": "DELETED", "object": {"metadata": {"name": "d"}}})
    result = watched("v1", "ConfigMap", "ops", {"a": "b"}, version="7", seconds=9.5)
    assert result == [
        ("ADDED", large),
        ("DELETED", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}}),
    ]
    (_, asked, _, _) = server.requests[0]
    assert asked.startswith("/api/v1/namespaces/ops/configmaps?labelSelector=a%3Db&watch=true")
    assert "resourceVersion=7&timeoutSeconds=9" in asked


@pytest.mark.parametrize(
    "broken", [events({"type": "ADDED", "object": OBJECT}) + b'{"type": "ADD\n', b"[]\n", b'{"object": {}}\n']
)
def test_an_unreadable_watch_is_a_transient_error(server: Server, watched: Watched, broken: bytes) -> None:
    server.body = broken
    with pytest.raises(ApiError) as caught:
        watched("v1", "ConfigMap", "ops", version="7", seconds=9)
    assert caught.value.transient


def test_a_watch_from_an_expired_resource_version_is_error_410(server: Server, watched: Watched) -> None:
    server.body = events(
        {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}}
    )
    with pytest.raises(ApiError) as caught:
        watched("v1", "ConfigMap", None, version="7", seconds=9)
    assert (caught.value.status, "too old" in caught.value.message) == (410, True)


def test_a_watch_whose_connection_breaks_is_a_transient_error(server: Server, watched: Watched) -> None:
    server.body, server.breaks = events({"type": "ADDED", "object": OBJECT}), "amid"
    with pytest.raises(ApiError) as caught:
        watched("v1", "ConfigMap", "ops", version="7", seconds=9)
    assert caught.value.transient


def test_a_watch_that_is_refused_names_the_status_and_the_time_to_wait(server: Server, watched: Watched) -> None:
    server.status, server.headers = 429, {"Retry-After": "7"}
    server.body = json.dumps({"kind": "Status", "message": "too many requests"}).encode()
    with pytest.raises(ApiError, match="too many requests") as caught:
        watched("v1", "ConfigMap", "ops", version="7", seconds=9)
    assert (caught.value.status, caught.value.retry_after) == (429, 7.0)


def test_a_watch_without_an_answer_is_a_transient_error(server: Server, watched: Watched) -> None:
    server.breaks = "before"
    with pytest.raises(ApiError) as caught:
        watched("v1", "ConfigMap", "ops", version="7", seconds=9)
    assert caught.value.transient


def test_a_list_has_its_resource_version(server: Server, kubernetes: Kubernetes) -> None:
    sent = {"metadata": {"name": "c", "managedFields": [{}]}}
    server.body = json.dumps({"metadata": {"resourceVersion": "12"}, "items": [sent]}).encode()
    assert kubernetes.listing("v1", "ConfigMap", "ops") == (
        [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}],
        "12",
    )


def test_a_long_list_is_read_in_pages(server: Server, kubernetes: Kubernetes) -> None:
    def piece(name: str, more: str) -> bytes:
        return json.dumps(
            {"metadata": {"resourceVersion": "12", "continue": more}, "items": [{"metadata": {"name": name}}]}
        ).encode()

    server.before, server.body = [piece("a", "t/1"), piece("b", "t/2")], piece("c", "")
    objects, version = kubernetes.listing("v1", "ConfigMap", "ops", {"l": "v"})
    assert ([o["metadata"]["name"] for o in objects], version) == (["a", "b", "c"], "12")
    asked = [dict(parse_qsl(urlsplit(where).query)) for _, where, _, _ in server.requests]
    assert asked == [
        {"labelSelector": "l=v", "limit": "500"},
        {"labelSelector": "l=v", "limit": "500", "continue": "t/1"},
        {"labelSelector": "l=v", "limit": "500", "continue": "t/2"},
    ]


def test_a_kind_is_served_if_the_api_group_lists_it(server: Server, kubernetes: Kubernetes) -> None:
    server.body = json.dumps(
        {"kind": "APIResourceList", "resources": [{"name": "as", "kind": "A"}, {"name": "as/status", "kind": "A"}]}
    ).encode()
    assert kubernetes.serves("x.io/v1", "A")
    assert not kubernetes.serves("x.io/v1", "B")
    assert server.requests[0][:2] == ("GET", "/apis/x.io/v1")
    server.status = 404
    assert not kubernetes.serves("x.io/v1", "A")
    server.status = 403
    with pytest.raises(ApiError):
        kubernetes.serves("x.io/v1", "A")


def test_events_are_selected_by_the_name_of_their_object(server: Server, kubernetes: Kubernetes) -> None:
    server.body = json.dumps({"items": [{"reason": "Delivering"}]}).encode()
    assert kubernetes.events("ops", "p") == [{"reason": "Delivering"}]
    url = urlsplit(server.requests[-1][1])
    assert url.path == "/api/v1/namespaces/ops/events"
    assert dict(parse_qsl(url.query))["fieldSelector"] == "involvedObject.name=p"


def test_an_answer_of_a_pod_comes_through_the_api_server(server: Server, kubernetes: Kubernetes) -> None:
    server.body = b"anything"
    assert kubernetes.through_pod("ops", "p-0", 4040, "progress", seconds=5, limit=8) == b"anything"
    assert server.requests[-1][1] == "/api/v1/namespaces/ops/pods/p-0%3A4040/proxy/progress"


@pytest.mark.parametrize(("seconds", "limit", "breaks"), [(5.0, 7, None), (1e-6, 8, None), (5.0, 100, "amid")])
def test_an_answer_of_a_pod_that_is_too_long_too_late_or_broken_is_an_error(
    server: Server, kubernetes: Kubernetes, seconds: float, limit: int, breaks: str | None
) -> None:
    server.body, server.breaks = b"anything", breaks
    with pytest.raises(ApiError, match=r"/proxy/progress"):
        kubernetes.through_pod("ops", "p-0", 4040, "progress", seconds=seconds, limit=limit)


def test_a_fenced_connection_reads_and_writes_only_while_the_fence_is_open(
    server: Server, kubernetes: Kubernetes
) -> None:
    fence = Fence(6.0, 11.0, lambda: 100.0)
    fenced = kubernetes.fenced(fence.write)
    assert fenced.get("v1", "ConfigMap", "ops", "c") == OBJECT
    writes: tuple[Callable[[], object], ...] = (
        lambda: fenced.apply(OBJECT),
        lambda: fenced.create(OBJECT),
        lambda: fenced.merge("v1", "ConfigMap", "ops", "c", {}),
        lambda: fenced.put_status(OBJECT),
        lambda: fenced.delete("v1", "ConfigMap", "ops", "c"),
    )
    for write in writes:
        server.requests.clear()
        with pytest.raises(Fenced):
            write()
        assert server.requests == []
    fence.extend(100.0)
    for write in writes:
        server.requests.clear()
        write()
        ((_, url, _, _),) = server.requests
        assert dict(parse_qsl(urlsplit(url).query))["timeout"] == "7.950s", "what is left of 11 s after connecting"


def test_a_call_that_timed_out_is_not_repeated() -> None:
    """A second attempt would last as long again, and might come after the time that the fence gives to a write."""
    retries = connect_retries()
    with pytest.raises(ReadTimeoutError):
        retries.increment("PUT", "/", error=ReadTimeoutError(cast(Any, None), "/", "timed out"))
    assert retries.increment("PUT", "/", error=ProtocolError("closed")).total == 0, "the control"


def connect_retries() -> Retry:
    return kubernetes_client._Once(1, respect_retry_after_header=False)


def _nested(levels: int) -> bytes:
    return b'{"f:a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("levels", [150, 400, 950, 1200, 9000])
@pytest.mark.parametrize("at", ["managedFields", "data"])
def test_one_object_that_is_nested_too_deeply_hides_no_other(
    server: Server, kubernetes: Kubernetes, watched: Watched, levels: int, at: str
) -> None:
    deep = b'{"metadata": {"name": "d", "managedFields": 0}, "data": 0}'.replace(
        b'"%s": 0' % at.encode(), b'"%s": %s' % (at.encode(), _nested(levels))
    )
    good = json.dumps(OBJECT).encode()
    server.body = b'{"metadata": {"resourceVersion": "12"}, "items": [%s, %s]}' % (deep, good)
    listed, version = kubernetes.listing("v1", "ConfigMap", "ops")
    assert (len(listed), listed[0]["metadata"], listed[1], version) == (2, {"name": "d"}, OBJECT, "12")
    server.body = b'{"type": "ADDED", "object": %s}\n{"type": "ADDED", "object": %s}\n' % (deep, good)
    (_, first), second = watched("v1", "ConfigMap", "ops", version="7", seconds=9)
    assert (first, second) == (listed[0], ("ADDED", OBJECT))
    json.dumps(first), repr(first)
