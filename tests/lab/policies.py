"""NetworkPolicies in a cluster of network namespaces: kube-router enforces them on each node, with iptables and ipset.

Only its part for policies runs. Pods are routed by their nodes, whose FORWARD chain all their traffic passes. The
kernel of some machines lacks the expression `queue` of nftables, which sigs.k8s.io/kube-network-policies needs.
"""

from __future__ import annotations

from typing import Any

USER = "lab-kube-router"  # of its certificate
_CORE = ["pods", "namespaces", "nodes", "services", "endpoints"]


def objects() -> dict[str, Any]:
    """What kube-router may read."""
    group = "rbac.authorization.k8s.io"
    verbs = ["get", "list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": _CORE, "verbs": verbs},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": verbs},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": verbs},
    ]
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": USER}, "rules": rules}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": USER},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": USER},
        "subjects": [{"kind": "User", "name": USER, "apiGroup": group}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role, binding]}
