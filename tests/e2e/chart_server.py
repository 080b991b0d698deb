"""Helpers for tests of the chart with a real API server: helm, rendered manifests, and the operator of a release."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from e2e.api_server import ApiServer
from e2e.operator_process import OperatorProcess
from lab import binaries
from lab.cluster import print_progress

CHART = Path(__file__).parents[2] / "charts" / "ackwright"
SYSTEM = "ackwright-system"  # the release's namespace
OPERATOR = "ackwright-operator"


class ChartServer(ApiServer):
    """An API server with helm, and with namespaces that enforce Pod Security."""

    def helm(self, *arguments: str | Path, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Runs helm as the administrator; the caller checks the exit code. values: passed as a values file."""
        program = binaries.program("helm", print_progress)
        argv = [str(program), "--kubeconfig", str(self.kubeconfig), *map(str, arguments)]
        argv += ["--values", "-"] if values is not None else []
        home = {
            name: str(self.directory / "helm")
            for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        text = json.dumps(values) if values is not None else None
        return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=120, check=False, env=home)

    def create_namespace(self, name: str) -> None:
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        assert self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})[0] == 201

    def get(self, path: str) -> Any:
        code, answer = self.request("GET", path)
        assert code == 200, answer
        return answer


class ReleasedOperator(OperatorProcess):
    """An operator with the arguments, settings and permissions of the chart's Deployment and ServiceAccount."""

    def __init__(self, api: ChartServer) -> None:
        deployment = api.get(f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/{OPERATOR}")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        super().__init__(api, SYSTEM, OPERATOR, container["args"], {e["name"]: e["value"] for e in container["env"]})


def monitoring_crd(plural: str, kind: str) -> dict[str, Any]:
    """A CRD of the Prometheus operator that accepts any content."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
    names = {"kind": kind, "plural": plural, "singular": kind.lower()}
    spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
    meta = {"name": f"{plural}.monitoring.coreos.com"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def render_chart(api: ChartServer, values: Mapping[str, Any]) -> str:
    """The manifests of the chart with these values."""
    arguments = ("template", "ackwright", CHART, "--namespace", SYSTEM, "--kube-version", "1.34.0")
    completed = api.helm(*arguments, values=values)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


def dry_run(api: ApiServer, manifests: str) -> subprocess.CompletedProcess[str]:
    """Applies the manifests as a dry run on the server, with strict validation."""
    file = api.directory / "manifests.yaml"
    file.write_text(manifests)
    return api.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", file)


@contextmanager
def chart_server(*namespaces: str) -> Iterator[ChartServer]:
    """An API server with these namespaces and the CRDs of the Prometheus operator."""
    with ChartServer(binaries.directory(print_progress)) as server:
        for name in namespaces:
            server.create_namespace(name)
        for plural, kind in (
            ("podmonitors", "PodMonitor"),
            ("servicemonitors", "ServiceMonitor"),
            ("prometheusrules", "PrometheusRule"),
        ):
            applied = server.kubectl("apply", "-f", "-", stdin=monitoring_crd(plural, kind))
            assert applied.returncode == 0, applied.stderr
        yield server
