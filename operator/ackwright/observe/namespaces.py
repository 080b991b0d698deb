"""What a namespace that is being deleted reports about its content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ackwright.clients.kubernetes import GROUP, PLURAL

# https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/controller/namespace/deletion/status_condition_utils.go
_REMAINING = "NamespaceContentRemaining"
_FAILURES = (
    "NamespaceDeletionDiscoveryFailure",
    "NamespaceDeletionGroupVersionParsingFailure",
    "NamespaceDeletionContentFailure",
)
_ENTRY = re.compile(r"(\S+) has \d+ resource instances")  # plural.group of each kind of which objects are left
_PODS = "pods."


def has_no_pods(namespace: Mapping[str, Any]) -> bool:
    """Whether Kubernetes reports that pipelines are left in the namespace, and no pods.

    New pods are refused while a namespace is deleted, so none will follow. While pods are deleted before everything
    else, Kubernetes reports that nothing is left, so only a report that names the pipelines counts.
    """
    status = namespace.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    remaining = conditions.get(_REMAINING, {})
    failed = any(conditions.get(name, {}).get("status") != "False" for name in _FAILURES)
    if status.get("phase") != "Terminating" or failed or remaining.get("status") != "True":
        return False
    left = set(_ENTRY.findall(remaining.get("message", "")))
    return f"{PLURAL}.{GROUP}" in left and _PODS not in left
