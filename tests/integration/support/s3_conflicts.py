"""A server of S3 that answers 409 to conditional writes: a proxy that keeps their requests back.

S3 does so while another request creates or removes the same file (ConditionalRequestConflict), and means: send again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

from waiting import ANSWER

_ANSWER = b"<Error><Code>ConditionalRequestConflict</Code><Message>send it again</Message></Error>"
_PASSED_ON = ("content-length", "content-range", "content-type", "etag", "last-modified")


@dataclass
class Conflicts:
    """The next conditional writes that are answered with 409."""

    remaining: int = 0
    answered: int = 0  # with 409

    def takes(self, condition: str | None) -> bool:
        """Whether the next request is answered with 409. condition: its If-None-Match."""
        if condition is None or not self.remaining:
            return False
        self.remaining -= 1
        self.answered += 1
        return True


@contextlib.contextmanager
def conflicting(endpoint: str) -> Iterator[tuple[str, Conflicts]]:
    """The address of the proxy, and how many requests it answers with 409."""
    conflicts = Conflicts()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if conflicts.takes(self.headers["If-None-Match"]):
                self._answer(409, {"Content-Type": "application/xml"}, _ANSWER)
                return
            # With the address of the proxy as Host, which is signed.
            headers = {**self.headers, "Accept-Encoding": "identity"}
            answer = requests.request(self.command, endpoint + self.path, data=body, headers=headers, timeout=ANSWER)
            passed_on = {name: value for name, value in answer.headers.items() if name.lower() in _PASSED_ON}
            self._answer(answer.status_code, passed_on, answer.content)

        def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(ConnectionError):  # the client waits no longer
                    self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", conflicts
        finally:
            server.shutdown()
