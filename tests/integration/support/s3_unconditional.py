"""A server of S3 that ignores `If-None-Match`: a proxy that takes the header away and signs each request again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import requests
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from integration.support.s3_handler import ProxyHandler, serving
from integration.support.s3_server import KEY, SECRET
from waiting import ANSWER

_FORWARDED = ("content-type", "range", "x-amz-content-sha256")


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

    class Handler(ProxyHandler):
        def forward(self) -> None:
            if "If-None-Match" in self.headers:
                conditional.arrives(self.path)
            body = self.body()
            headers = {name: self.headers[name] for name in _FORWARDED if name in self.headers}
            request = AWSRequest(self.command, endpoint + self.path, headers, body)
            S3SigV4Auth(Credentials(KEY, SECRET), "s3", "us-east-1").add_auth(request)
            signed = {**dict(request.headers), "Accept-Encoding": "identity"}
            self.pass_on(requests.request(self.command, request.url, data=body, headers=signed, timeout=ANSWER))

    with serving(Handler) as address:
        yield address, conditional
