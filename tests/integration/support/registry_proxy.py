"""A proxy that requires TLS and a login in front of a real schema registry, which has neither."""

from __future__ import annotations

import base64
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ackwright.local import certificates
from waiting import ANSWER

USER, PASSWORD = "job", "right-horse"


@contextmanager
def secured(url: str, directory: Path) -> Iterator[tuple[str, Path]]:
    """Yields the https address of a registry behind a login, and the directory with ca.crt. url: the registry's."""
    directory.mkdir(parents=True, exist_ok=True)
    certificates.create(directory)
    origin, path = url[: url.index("/apis")], url[url.index("/apis") :]
    expected = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Authorization"] != expected:
                self._answer(401, b'{"error_code": 401, "message": "Unauthorized"}')
                return
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)) or None
            headers = {"Content-Type": self.headers["Content-Type"] or "application/json"}
            request = urllib.request.Request(origin + self.path, body, headers, method=self.command)  # noqa: S310
            try:
                with urllib.request.urlopen(request, timeout=ANSWER) as answer:  # noqa: S310
                    self._answer(answer.status, answer.read())
            except urllib.error.HTTPError as e:
                self._answer(e.code, e.read())

        do_POST = do_GET

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "broker.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"https://127.0.0.1:{server.server_port}{path}", directory
    finally:
        server.shutdown()
        server.server_close()
