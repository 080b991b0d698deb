"""The chart before a real API server: an API server with helm, what the chart renders to, and the operator of a release."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from lab import binaries

CHART = Path(__file__).parents[2] / "charts" / "ackwright"
SYSTEM = "ackwright-system"  # the release's namespace
OPERATOR = "ackwright-operator"


class Server(ApiServer):
    """With helm, and with namespaces in which Pod Security is enforced."""

    def helm(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        program = binaries.program("helm", lambda line: print(line, file=sys.stderr))
        argv = [str(program), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        argv += ["--values", "-"] if values is not None else []
        home = {
            name: str(self.directory / "helm")
            for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        text = json.dumps(values) if values is not None else None
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=120, check=False, env=home)

    def namespace(self, name: str) -> None:
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        assert self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})[0] == 201

    def get(self, path: str) -> Any:
        code, found = self.request("GET", path)
        assert code == 200, found
        return found


class ReleasedOperator(OperatorProcess):
    """Its arguments, settings and rights are those of the chart's Deployment and account."""

    def __init__(self, api: Server) -> None:
        deployment = api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{OPERATOR}")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        super().__init__(api, SYSTEM, OPERATOR, container["args"], {e["name"]: e["value"] for e in container["env"]})


def monitoring_crd(plural: str, kind: str) -> dict[str, Any]:
    """Of the Prometheus operator no more than that there is such a kind."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
    meta = {"name": f"{plural}.monitoring.coreos.com"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def rendered(api: Server, values: Mapping[str, Any]) -> str:
    done = api.helm("template", "ackwright", CHART, "--namespace", SYSTEM, "--kube-version", "1.34.0", values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def dry_run(api: Server, manifests: str) -> subprocess.CompletedProcess[str]:
    file = api.directory / "manifests.yaml"
    file.write_text(manifests)
    return api.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)
