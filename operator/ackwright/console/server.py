"""The console's HTTP server: one page and the state as JSON, read only, for this user on this machine.

It listens on loopback. Every path begins with a random token, which other users of the machine do not know. A request
whose Host is another name is refused, because a page of another site may have let its name resolve to this machine
(DNS rebinding), and a request of another origin is refused, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ackwright.api.document import MAX_BYTES
from ackwright.conditions.staleness import as_known
from ackwright.console.chain import plan_view
from ackwright.console.source import Source
from ackwright.console.views import Details, Object, Remedies, View, detail, row
from ackwright.errors import AckwrightError
from ackwright.planning.declared import parse_resource
from ackwright_stream.jobspec import Reason

HOST = "127.0.0.1"
_PACKAGE = Path(__file__).parent
_DETAILS_FOR_S = 1.0  # so that several pages do not multiply the reads
_IDLE_S = 30.0  # after which a connection without a request is closed
_INLINE = re.compile(rb"<(script|style)[^>]*>(.*?)</\1>", re.DOTALL)


@dataclass(frozen=True)
class _Answer:
    body: bytes
    content_type: str = "application/json"
    status: int = 200
    policy: str = "default-src 'none'"


class Views:
    """The answers for one source. clock: seconds."""

    def __init__(self, source: Source, remedies: Remedies, clock: Callable[[], float] = time.monotonic) -> None:
        self._source, self._remedies, self._clock = source, remedies, clock
        self._recent: dict[tuple[str, str], tuple[float, tuple[Object, Details] | None]] = {}
        self._lock = threading.Lock()

    def state(self) -> View:
        """All pipelines."""
        listing = self._source.pipelines()
        return {
            "kind": self._source.kind,
            "title": self._source.title,
            "at": self._source.at,
            "problem": listing.problem,
            "pipelines": [row(self._as_known(r)) for r in listing.resources],
        }

    def pipeline(self, namespace: str, name: str) -> View | None:
        """One pipeline; None if it does not exist. Raises AckwrightError."""
        read = self._read(namespace, name)
        return detail(self._as_known(read[0]), read[1], self._remedies) if read else None

    def plan(self, text: str, namespace: str, name: str) -> View:
        """The plan of a text, compared with a pipeline if one is named."""
        read = self._read(namespace, name) if name else None
        return plan_view(text, parse_resource(read[0])[0] if read else None)

    def activity(self, after: int) -> View | None:
        return self._source.activity(after)

    def _as_known(self, resource: Object) -> Object:
        """The resource as far as it is known now. A recorded state is shown as it was."""
        return resource if self._source.at else as_known(resource, datetime.now(UTC))

    def _read(self, namespace: str, name: str) -> tuple[Object, Details] | None:
        place = (namespace, name)
        with self._lock:
            at, read = self._recent.get(place, (-_DETAILS_FOR_S, None))
            if self._clock() - at < _DETAILS_FOR_S:
                return read
        read = self._source.details(namespace, name)
        with self._lock:
            now = self._clock()
            self._recent = {k: v for k, v in self._recent.items() if now - v[0] < _DETAILS_FOR_S}
            self._recent[place] = (now, read)
        return read


class Server:
    """The server, in the background until close(). Raises OSError if it cannot listen on the port (0: any free one)."""

    def __init__(self, source: Source, token: str, port: int = 0) -> None:
        pages = {"": _page(_PACKAGE / "page.html"), "simulator": _page(_simulator())}
        remedies = Remedies(json.loads((_PACKAGE / "remedies.json").read_text()))
        handler = _handler(Views(source, remedies), pages, token)
        self._http = ThreadingHTTPServer((HOST, port), handler)
        self._http.daemon_threads = True
        self.url = f"http://{HOST}:{self._http.server_port}/{token}/"
        threading.Thread(target=self._http.serve_forever, name="console", daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _simulator() -> Path:
    """The page of the delivery simulator, in the checkout or in the installed package."""
    in_checkout = _PACKAGE.parents[2] / "docs" / "delivery-simulator.html"
    return in_checkout if in_checkout.exists() else _PACKAGE / "delivery-simulator.html"


def _page(file: Path) -> _Answer:
    content = file.read_bytes()
    return _Answer(content, "text/html; charset=utf-8", policy=_content_security_policy(content))


def _handler(views: Views, pages: Mapping[str, _Answer], token: str) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = _IDLE_S
        server: ThreadingHTTPServer

        def do_GET(self) -> None:
            self._answer(self._get)

        def do_POST(self) -> None:
            self._answer(self._post)

        def _get(self, route: str, query: Mapping[str, str]) -> _Answer:
            if route in pages:
                return pages[route]
            if route == "api/state":
                return _json(views.state())
            if route == "api/pipeline":
                return _optional(views.pipeline(query.get("namespace", ""), query.get("name", "")))
            if route == "api/activity" and query.get("after", "0").isdecimal():
                return _optional(views.activity(int(query.get("after", "0"))))
            return _refusal(404, "NotFound", "there is no such page; open the address that the command printed")

        def _post(self, route: str, query: Mapping[str, str]) -> _Answer:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MAX_BYTES:
                self.close_connection = True  # the rest of the request is not read
                return _refusal(413, "TooLarge", f"a text has at most {MAX_BYTES:,} bytes")
            body = self.rfile.read(int(length))
            # Pages of other origins cannot send this type without asking first.
            if self.headers.get_content_type() != "application/yaml" or route != "api/plan":
                return _refusal(
                    404, "NotFound", "the only thing that can be sent is a plan's text, as application/yaml"
                )
            try:
                text = body.decode()
            except UnicodeDecodeError:
                return _refusal(400, Reason.INVALID_SPEC, "the text is not UTF-8; send a YAML text")
            return _json(views.plan(text, query.get("namespace", ""), query.get("name", "")))

        def _answer(self, act: Callable[[str, Mapping[str, str]], _Answer]) -> None:
            url = urlsplit(self.path)
            first, _, route = url.path.removeprefix("/").partition("/")
            if not self._is_local():
                self.close_connection = True
                answer = _refusal(403, "WrongHost", "open the address that the command printed, and no other name")
            elif not hmac.compare_digest(first.encode(), token.encode()):
                self.close_connection = True
                answer = _refusal(404, "WrongToken", "open the address that the command printed, with its token")
            else:
                query = {name: values[-1] for name, values in parse_qs(url.query).items()}
                try:
                    answer = act(route, query)
                except AckwrightError as e:
                    answer = _refusal(502, str(e.reason), e.message)
            self._send(answer)

        def _is_local(self) -> bool:
            """Whether the request is for this machine by name, and comes from the page or from no page."""
            port = self.server.server_port
            hosts = {f"{HOST}:{port}", f"localhost:{port}"}
            origin = self.headers.get("Origin")
            return self.headers.get("Host") in hosts and (origin is None or origin in {f"http://{h}" for h in hosts})

        def _send(self, answer: _Answer) -> None:
            tag = f'"{hashlib.sha256(answer.body).hexdigest()[:24]}"'
            same = answer.status == 200 and self.headers.get("If-None-Match") == tag
            self.send_response(304 if same else answer.status)
            for name, value in (
                ("ETag", tag),
                ("Content-Type", answer.content_type),
                ("Content-Length", "0" if same else str(len(answer.body))),
                ("Cache-Control", "no-store"),
                ("Content-Security-Policy", answer.policy),
                ("Cross-Origin-Opener-Policy", "same-origin"),
                ("Cross-Origin-Resource-Policy", "same-origin"),
                ("Referrer-Policy", "no-referrer"),
                ("X-Content-Type-Options", "nosniff"),
            ):
                self.send_header(name, value)
            if self.close_connection:
                self.send_header("Connection", "close")
            self.end_headers()
            if not same:
                self.wfile.write(answer.body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    return Handler


def _json(value: object) -> _Answer:
    return _Answer(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str).encode())


def _optional(value: View | None) -> _Answer:
    return _json(value) if value is not None else _refusal(404, "NotFound", "it does not exist, or no longer")


def _refusal(status: int, reason: str, message: str) -> _Answer:
    body = json.dumps({"reason": reason, "message": message}).encode()
    return _Answer(body, status=status)


def _content_security_policy(page: bytes) -> str:
    """Only the page's own scripts and styles, by their hashes, and requests to this server."""
    hashes: dict[bytes, list[str]] = {b"script": [], b"style": []}
    for kind, content in _INLINE.findall(page):
        hashes[kind].append(f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'")
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(hashes[b'script']) or chr(39) + 'none' + chr(39)}",
            f"style-src {' '.join(hashes[b'style']) or chr(39) + 'none' + chr(39)}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
