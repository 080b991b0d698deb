"""A proxy in front of a real REST catalog: it requires TLS and a token of OAuth 2, and can lose answers."""

from __future__ import annotations

import json
import secrets
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from ackwright.local import certificates
from waiting import ANSWER

CLIENT, SECRET, SCOPE = "job", "right-horse", "PRINCIPAL_ROLE:ALL"


@dataclass
class Proxy:
    """What the proxy does, and what it has seen."""

    uri: str = ""
    ca: str = ""
    tokens: set[str] = field(default_factory=set)  # that are valid
    scopes: list[str] = field(default_factory=list)  # asked for
    loses_answers: bool = False  # to commits, which arrive
    forbids: bool = False  # commits
    bad_requests: list[str] = field(default_factory=list)  # answers with status 400 to the next commits

    def revoke(self) -> None:
        """Ends the tokens that were handed out."""
        self.tokens.clear()


@contextmanager
def secured(origin: str, directory: Path) -> Iterator[Proxy]:
    """A proxy. origin: the address of the catalog."""
    directory.mkdir(parents=True, exist_ok=True)
    certificates.create(directory)
    proxy = Proxy(ca=str(directory / "ca.crt"))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0)) or None
            if self.path == "/v1/oauth/tokens":
                self._token(parse_qs((body or b"").decode()))
                return
            if (self.headers["Authorization"] or "").removeprefix("Bearer ") not in proxy.tokens:
                self._answer(401, b'{"error": {"message": "no", "type": "NotAuthorizedException", "code": 401}}')
                return
            is_commit = self.command == "POST" and "/tables/" in self.path
            if is_commit and proxy.forbids:
                self._answer(403, b'{"error": {"message": "may not", "type": "ForbiddenException", "code": 403}}')
                return
            if is_commit and proxy.bad_requests:
                error = {"message": proxy.bad_requests.pop(0), "type": "BadRequestException", "code": 400}
                self._answer(400, json.dumps({"error": error}).encode())
                return
            request = urllib.request.Request(origin + self.path, body, method=self.command)  # noqa: S310
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, timeout=ANSWER) as answer:  # noqa: S310
                    status, content = answer.status, answer.read()
            except urllib.error.HTTPError as e:
                status, content = e.code, e.read()
            if is_commit and proxy.loses_answers:
                self.close_connection = True
                return
            self._answer(status, content)

        do_POST = do_HEAD = do_DELETE = do_GET

        def _token(self, form: dict[str, list[str]]) -> None:
            if (form["client_id"], form["client_secret"]) != ([CLIENT], [SECRET]):
                self._answer(401, b'{"error": "invalid_client"}')
                return
            token = secrets.token_hex()
            proxy.tokens.add(token)
            proxy.scopes += form["scope"]
            self._answer(200, json.dumps({"access_token": token, "token_type": "bearer", "expires_in": 3600}).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "broker.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    proxy.uri = f"https://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
