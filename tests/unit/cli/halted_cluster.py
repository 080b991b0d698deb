"""A cluster with one pipeline that has halted, for the commands that accept what it has halted at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ackwright.clients.kubernetes import Kubernetes


class HaltedCluster(Kubernetes):
    """One pipeline, ops/p. patched: how it was changed; after: its status then."""

    def __init__(self, status: Mapping[str, Any], annotations: Mapping[str, str] | None = None) -> None:
        metadata = {"name": "p", "annotations": dict(annotations or {})}
        self.resource: dict[str, Any] = {"metadata": metadata, "status": dict(status)}
        self.patched: list[dict[str, Any]] = []
        self.dry_runs = 0
        self.after: Mapping[str, Any] = {"conditions": [condition("Ready", "True", "Delivering", "")]}

    def resume(self) -> None:
        """The operator writes the status that follows."""
        self.resource["status"] = dict(self.after)

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return json.loads(json.dumps(self.resource)) if name == "p" else None

    def objects(
        self, api_version: str, kind: str, namespace: str | None, labels: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        return [self.resource]

    def merge(
        self, api_version: str, kind: str, namespace: str, name: str, change: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        assert (kind, namespace, name) == ("DeliveryPipeline", "ops", "p")
        if dry_run:
            self.dry_runs += 1
            return self.resource
        self.patched.append(change)
        self.resume()
        return self.resource


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """A condition of the status."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
