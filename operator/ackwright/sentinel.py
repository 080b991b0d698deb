"""Whether the operator still sees changes: it renews a Lease of its own, and expects to be told of that by the watch like of any change.

An operator whose watch has died silently looks healthy and does nothing (kopf's issues 1145 and 1276); this one is restarted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from ackwright.clients.kubernetes import ApiError, Kubernetes

NAME = "ackwright-operator"
EVERY_S = 15.0
_BLIND_S = 60.0


class Sentinel:
    """beat: call it every EVERY_S seconds; seen: with every Lease that the watch brings."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._kubernetes, self._namespace, self._clock = kubernetes, namespace, clock
        self._unseen: tuple[str, float] | None = None  # what was written and is not seen yet, and when

    def beat(self) -> None:
        """Renews the Lease. An API server that does not answer says nothing about the watch."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NAME, "namespace": self._namespace},
            "spec": {"holderIdentity": NAME, "leaseDurationSeconds": int(_BLIND_S), "renewTime": now},
        }
        waiting = self._unseen
        if waiting is None:
            self._unseen = (now, self._clock())  # before it is written, for the watch may be faster than the answer
        try:
            self._kubernetes.apply(lease)
        except ApiError:
            self._unseen = waiting

    def seen(self, lease: Mapping[str, Any]) -> None:
        renewed = (lease.get("spec") or {}).get("renewTime", "")
        if lease["metadata"]["name"] == NAME and self._unseen and renewed >= self._unseen[0]:
            self._unseen = None

    def healthy(self) -> bool:
        return self._unseen is None or self._clock() - self._unseen[1] < _BLIND_S
