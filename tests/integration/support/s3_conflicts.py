"""A server of S3 that answers 409 to conditional writes: a proxy that keeps their requests back.

S3 does so while another request creates or removes the same file (ConditionalRequestConflict), and means: send again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import requests

from integration.support.s3_handler import ProxyHandler, serving
from waiting import ANSWER

_ANSWER = b"<Error><Code>ConditionalRequestConflict</Code><Message>send it again</Message></Error>"


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

    class Handler(ProxyHandler):
        def forward(self) -> None:
            body = self.body()
            if conflicts.takes(self.headers["If-None-Match"]):
                self.answer(409, {"Content-Type": "application/xml"}, _ANSWER)
                return
            # With the address of the proxy as Host, which is signed.
            headers = {**self.headers, "Accept-Encoding": "identity"}
            url = endpoint + self.path
            self.pass_on(requests.request(self.command, url, data=body, headers=headers, timeout=ANSWER))

    with serving(Handler) as address:
        yield address, conflicts
