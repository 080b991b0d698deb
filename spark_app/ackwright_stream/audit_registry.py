"""The audit's own reader of a schema registry. It shares no code with the job's client."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from ackwright_stream.errors import JobError
from ackwright_stream.jobspec import Reason, SchemaRegistry

_TRIES_EVERY_S = 1.0


def get(registry: SchemaRegistry, path: str) -> Any:
    """The answer of the registry; None if it says that there is none. Raises JobError."""
    deadline = time.monotonic() + registry.timeout_ms / 1000
    while True:
        try:
            request = urllib.request.Request(registry.url.rstrip("/") + path, headers=_login(registry))  # noqa: S310
            with _opener(registry.ca).open(request, timeout=registry.timeout_ms / 1000) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as e:
            problem = f"HTTP status {e.code}"
            if e.code == 404 and b'"error_code"' in e.read():
                return None
            if e.code in (401, 403):
                raise _failed(Reason.REGISTRY_LOGIN_REFUSED, registry, problem) from None
        except (OSError, ValueError) as e:
            problem = str(e)
        if time.monotonic() + _TRIES_EVERY_S > deadline:
            raise _failed(Reason.REGISTRY_UNREACHABLE, registry, problem)
        time.sleep(_TRIES_EVERY_S)


def _failed(reason: Reason, registry: SchemaRegistry, problem: str) -> JobError:
    return JobError(reason, f"the audit cannot read the schema registry {registry.url}: {problem}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The login would go with a redirect to another host."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener(ca: str | None) -> urllib.request.OpenerDirector:
    context = ssl.create_default_context(cafile=ca)
    return urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect())


def _login(registry: SchemaRegistry) -> dict[str, str]:
    if registry.credentials is None:
        return {}
    user, password = (Path(registry.credentials, name).read_bytes().strip(b"\r\n") for name in ("username", "password"))
    return {"Authorization": f"Basic {base64.b64encode(user + b':' + password).decode()}"}


def required(registry: SchemaRegistry | None) -> SchemaRegistry:
    if registry is None:
        raise JobError(Reason.UNEXPECTED, "the jobspec has no schema registry, and its format needs one; report this")
    return registry
