"""Checks that the operator still receives events: it renews a separate Lease and expects the watch to report that.

An operator whose watch has died silently seems healthy and does nothing (kopf's issues 1145 and 1276). This one fails
its liveness probe and is restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ackwright.clients.kubernetes import ApiError, Kubernetes

NAME = "ackwright-operator"
EVERY_S = 15.0
_BLIND_S = 60.0  # without the event of a renewal for this long, the operator is unhealthy


class Sentinel:
    """Call beat() every EVERY_S seconds, and update() with every Lease that the watch reports."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubernetes, self._namespace, self._clock = kubernetes, namespace, clock
        self._awaited: tuple[str, float] | None = None  # a renewal without its event yet, and when it was written

    def beat(self) -> None:
        """Renews the Lease. An API server that does not answer says nothing about the watch."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "spec": {"holderIdentity": NAME, "leaseDurationSeconds": int(_BLIND_S), "renewTime": now},
        }
        before = self._awaited
        if before is None:
            self._awaited = (now, self._clock())  # before the write, since the event may arrive before the answer
        try:
            self._kubernetes.apply(lease)
        except ApiError:
            self._awaited = before

    def update(self, lease: Mapping[str, Any]) -> None:
        """Takes a Lease that the watch reports."""
        renewed = (lease.get("spec") or {}).get("renewTime", "")
        if lease["metadata"]["name"] == NAME and self._awaited and renewed >= self._awaited[0]:
            self._awaited = None

    def healthy(self) -> bool:
        """Whether the watch reports renewals in time."""
        return self._awaited is None or self._clock() - self._awaited[1] < _BLIND_S
