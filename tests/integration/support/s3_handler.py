"""What the proxies in front of a server of S3 have in common."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests

_PASSED_ON = ("content-length", "content-range", "content-type", "etag", "last-modified")


class ProxyHandler(BaseHTTPRequestHandler):
    """Answers each request by forward(), which a proxy defines."""

    protocol_version = "HTTP/1.1"

    def forward(self) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.forward()

    do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

    def body(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def pass_on(self, answer: requests.Response) -> None:
        """Sends the server's answer to the client."""
        headers = {name: value for name, value in answer.headers.items() if name.lower() in _PASSED_ON}
        self.answer(answer.status_code, headers, answer.content)

    def answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):  # the client waits no longer
                self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextlib.contextmanager
def serving(handler: type[ProxyHandler]) -> Iterator[str]:
    """The address of a proxy with this handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
