"""A cluster with one pipeline, for the console's tests; its calls can be refused, and its watch reports changes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from ackwright.clients.kubernetes import ApiError, Kubernetes
from unit.console import recorded

FORBIDDEN = ApiError(403, "forbidden")


class Cluster(Kubernetes):
    """One pipeline with its pods. refused: the calls that fail; changes: what the next watch reports."""

    def __init__(self) -> None:
        self.resource = recorded.resource("delayed-flights")
        self.refused: dict[str, ApiError] = {}
        self.changes: list[tuple[str, dict[str, Any]]] = []
        self.broken = threading.Event()  # whether watches break
        self.log = json.dumps(recorded.report().document())
        self.pods = [recorded.pod("delayed-flights-0", "driver"), audit_pod(0)]

    def _call_or_refuse(self, what: str) -> None:
        if what in self.refused:
            raise self.refused[what]

    def listing(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> tuple[list[dict[str, Any]], str]:
        self._call_or_refuse("list")
        return [self.resource], "7"

    def watch(
        self,
        api_version: str,
        kind: str,
        namespace: str | None,
        labels: Mapping[str, str] | None = None,
        *,
        version: str,
        seconds: float,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        self._call_or_refuse("watch")
        yield "BOOKMARK", {"metadata": {}}
        while self.changes:
            yield self.changes.pop(0)
        self.broken.wait(60)
        raise ApiError(None, "the connection broke")

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self._call_or_refuse("get")
        return self.resource if name == "delayed-flights" else None

    def objects(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        self._call_or_refuse(kind)
        return self.pods

    def events(self, namespace: str, name: str) -> list[dict[str, Any]]:
        self._call_or_refuse("Event")
        return [recorded.event(recorded.AT, "Normal", "Delivering", "", name)]

    def through_pod(self, namespace: str, pod: str, port: int, route: str, *, seconds: float, limit: int) -> bytes:
        self._call_or_refuse("proxy")
        return json.dumps(recorded.progress("ops", "delayed-flights", "flights").as_json()).encode()

    def logs(self, namespace: str, pod: str, *, container: str, follow: bool, tail: int | None, previous: bool) -> Any:
        self._call_or_refuse("log")
        self.refused["log"] = ApiError(404, "the log is read once")

        class Log:
            read = staticmethod(f"a line\n{self.log}\n".encode)

        return Log()


def audit_pod(exit_code: int | None, message: str = "") -> dict[str, Any]:
    pod = recorded.pod("delayed-flights-audit-a1", "audit")
    terminated = {"terminated": {"exitCode": exit_code, "finishedAt": recorded.AT, "message": message}}
    pod["status"]["containerStatuses"][0]["state"] = {"running": {}} if exit_code is None else terminated
    return pod
