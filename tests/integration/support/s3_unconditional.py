"""A server of S3 that ignores `If-None-Match`: a proxy that takes the header away and signs each request again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from integration.support.s3_server import KEY, SECRET
from waiting import ANSWER

_FORWARDED = ("content-type", "range", "x-amz-content-sha256")
_PASSED_ON = ("content-length", "content-range", "content-type", "etag", "last-modified")


@dataclass
class Requests:
    """The requests that had the header."""

    paths: list[str] = field(default_factory=list)
    meanwhile: Callable[[], object] | None = None  # called once, while the next one is on its way

    def arrives(self, path: str) -> None:
        self.paths.append(path)
        call, self.meanwhile = self.meanwhile, None
        if call is not None:
            call()


@contextlib.contextmanager
def ignoring_conditions(endpoint: str) -> Iterator[tuple[str, Requests]]:
    """The address of the proxy, and what it has seen."""
    conditional = Requests()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            if "If-None-Match" in self.headers:
                conditional.arrives(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name: self.headers[name] for name in _FORWARDED if name in self.headers}
            request = AWSRequest(self.command, endpoint + self.path, headers, body)
            S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
            signed = {**dict(request.headers), "Accept-Encoding": "identity"}
            answer = requests.request(self.command, request.url, data=body, headers=signed, timeout=ANSWER)
            self.send_response(answer.status_code)
            passed_on = {name: value for name, value in answer.headers.items() if name.lower() in _PASSED_ON}
            for name, value in {"Content-Length": str(len(answer.content)), **passed_on}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer.content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _forward

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", conditional
        finally:
            server.shutdown()
