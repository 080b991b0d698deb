"""The manifests and notes of the chart, and the kustomize base, as a real API server accepts them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.chart_server import CHART, SYSTEM, ChartServer, chart_server, dry_run, render_chart

ROOT = Path(__file__).parents[2]
OPS = "ops"
ALL_OPTIONS = {
    "podMonitor": {"enabled": True, "drivers": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboard": {"enabled": True},
    "networkPolicy": {
        "enabled": True,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "egress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 9092, "protocol": "TCP"}]}],
    },
    "image": {
        "operator": "registry.example/ackwright-operator@sha256:" + "a" * 64,
        "pullSecrets": [{"name": "registry"}],
    },
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
            }
        }
    },
    "priorityClassName": "system-cluster-critical",
    "podLabels": {"team": "data"},
    "settings": {"STUCK": 300, "WORKERS": "4"},
}


@pytest.fixture(scope="module")
def api() -> Iterator[ChartServer]:
    with chart_server(SYSTEM, OPS) as server:
        yield server


@pytest.mark.parametrize(
    "values", [{}, {"watchNamespaces": [OPS, SYSTEM]}, {"watchAllNamespaces": True}, ALL_OPTIONS], ids=range(4)
)
def test_the_api_server_accepts_the_manifests_without_a_warning(api: ChartServer, values: dict[str, Any]) -> None:
    manifests = render_chart(api, values)
    applied = dry_run(api, manifests)
    assert (applied.returncode, applied.stderr) == (0, ""), applied.stderr
    assert len(applied.stdout.splitlines()) == len([o for o in yaml.safe_load_all(manifests) if o])


@pytest.mark.parametrize(
    ("text", "replacement", "message"),
    [
        ("readOnlyRootFilesystem:", "readOnlyRootFilesystems:", "readOnlyRootFilesystems"),
        ("runAsNonRoot: true", "runAsNonRoot: false", "violate PodSecurity"),
        ("periodSeconds: 5", "periodSeconds: -5", "greater than or equal"),
    ],
)
def test_the_api_server_refuses_wrong_manifests(api: ChartServer, text: str, replacement: str, message: str) -> None:
    """The control of the test above."""
    manifests = render_chart(api, {})
    assert text in manifests
    assert message in dry_run(api, manifests.replace(text, replacement)).stderr


def test_the_kustomize_base_is_accepted_and_can_be_moved_to_another_namespace(api: ChartServer) -> None:
    for directory, namespace in ((ROOT / "deploy" / "base", SYSTEM), (ROOT / "examples" / "gitops" / "kustomize", OPS)):
        built = api.kubectl("kustomize", directory)
        assert built.returncode == 0, built.stderr
        applied = dry_run(api, built.stdout)
        assert (applied.returncode, applied.stderr) == (0, ""), applied.stderr
        objects = [o for o in yaml.safe_load_all(built.stdout) if o]
        assert {o["metadata"].get("namespace", namespace) for o in objects} == {namespace}
        binding = next(o for o in objects if o["kind"] == "RoleBinding")
        assert [s["namespace"] for s in binding["subjects"]] == [namespace]
    container = next(o for o in objects if o["kind"] == "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example/ackwright-operator:0.1.0"
    assert {"name": "ACKWRIGHT_SPARK_IMAGE", "value": "registry.example/ackwright-spark:0.1.0"} in container["env"]
    assert any(e["name"] == "ACKWRIGHT_IMAGE_PULL_POLICY" for e in container["env"]), "the overlay adds to the base"


@pytest.mark.parametrize(
    ("values", "present", "absent"),
    [
        (
            {},
            ["helm test ackwright --namespace ackwright-system", "list their namespaces in watchNamespaces"],
            ["crds/"],
        ),
        (
            {"watchNamespaces": [OPS, "z"]},
            ["kubectl apply --namespace ops --filename", "pipelines in ops, z."],
            ["watchNamespaces"],
        ),
        ({"watchAllNamespaces": True}, ["pipelines in every namespace."], ["watchNamespaces"]),
        ({"crds": {"enabled": False}}, ["kubectl apply --server-side --filename crds/"], []),
    ],
    ids=range(4),
)
def test_the_notes_contain_the_next_command(
    api: ChartServer, values: dict[str, Any], present: list[str], absent: list[str]
) -> None:
    completed = api.helm("install", "ackwright", CHART, "--namespace", SYSTEM, "--dry-run=server", values=values)
    assert completed.returncode == 0, completed.stderr
    notes = completed.stdout.split("NOTES:\n")[1]
    assert [text for text in present if text not in notes] == [], notes
    assert [text for text in absent if text in notes] == [], notes
