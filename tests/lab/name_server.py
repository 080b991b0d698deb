"""CoreDNS on its host, at the cluster's DNS address: resolves services, pods of headless services, and brokers."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .certificates import kubeconfig
from .network import DNS_SERVICE, NAME_SERVER, Host
from .processes import STATE, Daemon, run, wait_until

HOST = Host("dns", NAME_SERVER)
DAEMON = Daemon("coredns")
_READY = f"http://{NAME_SERVER}:8181/ready"


def start(binaries: Path, names: Mapping[str, list[str]]) -> None:
    """Registers the name server in the cluster and starts it; returns when it has read the cluster's services.

    names: further host names and their addresses.
    """
    run(
        binaries / "kubectl",
        "--kubeconfig",
        kubeconfig("admin"),
        "apply",
        "--filename",
        "-",
        text=json.dumps(_objects()),
    )
    corefile = STATE / "Corefile"
    corefile.write_text(_corefile(names))
    DAEMON.start([binaries / "coredns", "-conf", corefile], HOST.enter)
    wait_until(_ready, "the name server is ready", 60, DAEMON.exit_cause)


def _ready() -> bool:
    DAEMON.check()
    try:
        with urllib.request.urlopen(_READY, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _corefile(names: Mapping[str, list[str]]) -> str:
    hosts = "".join(f"    {address} {name}\n" for name, addresses in names.items() for address in addresses)
    return f""".:53 {{
  bind {NAME_SERVER}
  ready {NAME_SERVER}:8181
  errors
  hosts {{
{hosts}    no_reverse
    ttl 5
    fallthrough
  }}
  kubernetes cluster.local {{
    kubeconfig {kubeconfig("dns")}
    ttl 5
  }}
}}
"""


def _objects() -> dict[str, Any]:
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lab-coredns"}
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    service = {"name": "kube-dns", "namespace": "kube-system"}
    return _list(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "lab-coredns"},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "lab-coredns"},
            "roleRef": role,
            "subjects": [{"kind": "User", "name": "system:coredns", "apiGroup": "rbac.authorization.k8s.io"}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": service,
            "spec": {"clusterIP": DNS_SERVICE, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": service | {"labels": {"kubernetes.io/service-name": "kube-dns"}},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [NAME_SERVER], "conditions": {"ready": True}}],
        },
    )


def _list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}
