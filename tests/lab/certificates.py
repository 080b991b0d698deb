"""The cluster's certificate authority, certificates and kubeconfigs, created with openssl. Valid for 30 days."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from .network import API_SERVICE, CONTROL_PLANE
from .processes import STATE, run

PKI = STATE / "pki"
API_SERVER = f"https://{CONTROL_PLANE}:6443"
CA = PKI / "ca.crt"

# openssl's default configuration would mark every certificate as an authority.
_CONFIGURATION = "[req]\ndistinguished_name = none\n[none]\n"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30", "-batch")


def key(name: str) -> Path:
    return PKI / f"{name}.key"


def certificate(name: str) -> Path:
    return PKI / f"{name}.crt"


def create(nodes: int) -> None:
    """Creates all files for a cluster with this number of nodes."""
    PKI.mkdir(parents=True, exist_ok=True)
    _sign("ca", "/CN=ackwright lab CA", "basicConstraints=critical,CA:TRUE", authority=True)
    names = [
        "DNS:kubernetes",
        "DNS:kubernetes.default",
        "DNS:kubernetes.default.svc",
        "DNS:kubernetes.default.svc.cluster.local",
    ]
    _sign(
        "apiserver",
        "/CN=kube-apiserver",
        "subjectAltName=" + ",".join([*names, f"IP:{API_SERVICE}", f"IP:{CONTROL_PLANE}"]),
    )
    _sign("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client")
    users = {
        "admin": "/O=system:masters/CN=admin",
        "controller-manager": "/CN=system:kube-controller-manager",
        "scheduler": "/CN=system:kube-scheduler",
        "proxy": "/CN=system:kube-proxy",
        "dns": "/CN=system:coredns",
        "policies": "/CN=lab-kube-router",
    }
    users |= {f"node{i}": f"/O=system:nodes/CN=system:node:node{i}" for i in range(1, nodes + 1)}
    for name, subject in users.items():
        _sign(name, subject)
        kubeconfig(name).write_text(_kubeconfig(name))
        kubeconfig(name).chmod(0o600)
    run(
        "openssl",
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-out",
        key("service-accounts"),
    )
    run("openssl", "pkey", "-in", key("service-accounts"), "-pubout", "-out", PKI / "service-accounts.pub")


def kubeconfig(name: str) -> Path:
    return PKI / f"{name}.kubeconfig"


def _sign(name: str, subject: str, extension: str = "basicConstraints=CA:FALSE", authority: bool = False) -> None:
    configuration = PKI / "openssl.cnf"
    configuration.write_text(_CONFIGURATION)
    signer: list[str | Path] = [] if authority else ["-CA", CA, "-CAkey", key("ca")]
    out: list[str | Path] = ["-keyout", key(name), "-out", certificate(name)]
    run(
        "openssl",
        "req",
        "-x509",
        "-config",
        configuration,
        *_NEW_KEY,
        *signer,
        *out,
        "-subj",
        subject,
        "-addext",
        extension,
    )


def _kubeconfig(name: str) -> str:
    """The kubeconfig of the user whose certificate has this name, as JSON, which is valid YAML."""

    def data(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    cluster = {"server": API_SERVER, "certificate-authority-data": data(CA)}
    user = {"client-certificate-data": data(certificate(name)), "client-key-data": data(key(name))}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "ackwright-lab", "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": "ackwright-lab", "context": {"cluster": "ackwright-lab", "user": name}}],
        "current-context": "ackwright-lab",
    }
    return json.dumps(content, indent=2) + "\n"
