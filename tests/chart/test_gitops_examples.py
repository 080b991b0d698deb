"""The examples for Argo CD and Flux name existing things: the chart, values that it accepts, paths, and each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from chart.rendered import CHART, ROOT, text

EXAMPLES = ROOT / "examples" / "gitops"


def documents(name: str) -> dict[tuple[str, str], Any]:
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all((EXAMPLES / name).read_text())}


@pytest.mark.parametrize("tool", ["argocd", "flux"])
def test_the_chart_accepts_the_values_and_watches_the_pipelines_namespace(tool: str) -> None:
    resources = documents(f"{tool}.yaml")
    if tool == "argocd":
        source = resources["Application", "ackwright"]["spec"]["source"]
        path, values = source["path"], source["helm"]["valuesObject"]
        target = resources["Application", "pipelines"]["spec"]["destination"]["namespace"]
    else:
        spec = resources["HelmRelease", "ackwright"]["spec"]
        path, values = spec["chart"]["spec"]["chart"], spec["values"]
        target = resources["Kustomization", "pipelines"]["spec"]["targetNamespace"]
    assert ROOT / path == CHART
    text(values)
    assert values["watchNamespaces"] == [target]


def test_flux_sources_exist() -> None:
    resources = documents("flux.yaml")
    named = {resources["HelmRelease", "ackwright"]["spec"]["chart"]["spec"]["sourceRef"]["name"]}
    named.add(resources["Kustomization", "pipelines"]["spec"]["sourceRef"]["name"])
    assert named == {name for kind, name in resources if kind == "GitRepository"}


def test_the_examples_name_the_current_release() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for file in (*EXAMPLES.glob("*.yaml"), EXAMPLES / "kustomize" / "kustomization.yaml"):
        assert version in file.read_text(), file.name
