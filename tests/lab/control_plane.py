"""The control plane: etcd, API server, controller manager and scheduler, with RBAC and Pod Security admission."""

from __future__ import annotations

from pathlib import Path

from .certificates import API_SERVER, CA, PKI, certificate, key, kubeconfig
from .network import CONTROL_PLANE, SERVICES, Host
from .processes import STATE, Daemon, run, wait_until

HOST = Host("control", CONTROL_PLANE)
NODE_GRACE_SECONDS = 12  # after which a silent node is NotReady; Kubernetes' default is 50
_ETCD = "http://127.0.0.1:2379"  # loopback of the host: not reachable from other hosts

ETCD, CONTROLLERS, SCHEDULER = Daemon("etcd"), Daemon("kube-controller-manager"), Daemon("kube-scheduler")
API = Daemon("kube-apiserver")
DAEMONS = (ETCD, API, CONTROLLERS, SCHEDULER)


def start(binaries: Path) -> None:
    """Starts all four daemons; returns when the API server answers."""
    # fmt: off
    ETCD.start([
        binaries / "etcd", "--data-dir", STATE / "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", _ETCD, "--advertise-client-urls", _ETCD, "--listen-peer-urls", "http://127.0.0.1:2380",
    ], HOST.enter)
    API.start([
        binaries / "kube-apiserver", "--etcd-servers", _ETCD,
        "--bind-address", CONTROL_PLANE, "--advertise-address", CONTROL_PLANE, "--service-cluster-ip-range", SERVICES,
        "--tls-cert-file", certificate("apiserver"), "--tls-private-key-file", key("apiserver"), "--client-ca-file", CA,
        "--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
        "--service-account-key-file", PKI / "service-accounts.pub",
        "--service-account-signing-key-file", key("service-accounts"),
        "--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged",
        "--kubelet-client-certificate", certificate("kubelet-client"), "--kubelet-client-key", key("kubelet-client"),
        "--kubelet-preferred-address-types", "InternalIP",  # DNS does not have the nodes' names
    ], HOST.enter)
    # fmt: on
    wait_until(lambda: _ready(binaries), "the API server is ready", 90, API.exit_cause)
    # fmt: off
    CONTROLLERS.start([
        binaries / "kube-controller-manager", "--kubeconfig", kubeconfig("controller-manager"),
        "--use-service-account-credentials", "--service-account-private-key-file", key("service-accounts"),
        "--root-ca-file", CA, "--leader-elect=false",
        "--node-monitor-grace-period", f"{NODE_GRACE_SECONDS}s", "--node-monitor-period", "2s",
    ], HOST.enter)
    # fmt: on
    SCHEDULER.start(
        [binaries / "kube-scheduler", "--kubeconfig", kubeconfig("scheduler"), "--leader-elect=false"], HOST.enter
    )


def _ready(binaries: Path) -> bool:
    for daemon in (ETCD, API):
        daemon.check()
    return (
        run(
            binaries / "kubectl", "--kubeconfig", kubeconfig("admin"), "--server", API_SERVER, "get", "--raw", "/readyz"
        )
        == "ok"
    )
