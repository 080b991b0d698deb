"""Which of the watched namespaces are lost: deleted, or without the operator's permissions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

OPERATOR = "ackwright-operator"  # the chart's Deployment


@dataclass(frozen=True)
class Change:
    """A namespace has been lost, or is back."""

    namespace: str
    lost: bool
    message: str

    def event(self, own_namespace: str, now: datetime) -> dict[str, Any]:
        """An Event about the operator, in its own namespace: none can be written in the lost one."""
        time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{OPERATOR}-", "namespace": own_namespace},
            "involvedObject": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": OPERATOR,
                "namespace": own_namespace,
            },
            "type": "Warning" if self.lost else "Normal",
            "reason": "NamespaceLost" if self.lost else "NamespaceBack",
            "message": self.message[:1024],
            "source": {"component": OPERATOR},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }


class LostNamespaces:
    """The kinds that cannot be listed, by namespace. One thread writes, several read."""

    def __init__(self, namespaces: Iterable[str]) -> None:
        """namespaces: those that are watched by name."""
        self._kinds: dict[str, set[str]] = {namespace: set() for namespace in namespaces}

    def __contains__(self, namespace: str) -> bool:
        return bool(self._kinds.get(namespace))

    def lists(self, namespace: str, kind: str) -> bool:
        """Whether the objects of a kind can be listed."""
        return kind not in self._kinds.get(namespace, ())

    def by_namespace(self) -> dict[str, bool]:
        """Whether each namespace is lost."""
        return {namespace: bool(kinds) for namespace, kinds in self._kinds.items()}

    def update(self, namespace: str, kind: str, why: str | None) -> Change | None:
        """Notes that a kind cannot be listed, and why; None: it can. Returns what that changes for the namespace."""
        kinds = self._kinds.setdefault(namespace, set())
        was_lost = bool(kinds)
        if why is None:
            kinds.discard(kind)
        else:
            kinds.add(kind)
        if bool(kinds) == was_lost:
            return None
        if not kinds:
            return Change(namespace, False, f"namespace {namespace} can be watched again")
        return Change(
            namespace,
            True,
            f"namespace {namespace} is lost, and its pipelines are not reconciled: {why}; recreate the namespace and "
            "the operator's Role in it (helm upgrade), or remove it from watchNamespaces",
        )
