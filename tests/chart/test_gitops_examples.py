"""The examples for Argo CD and Flux name what there is: the chart, values that it takes, paths, and each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from chart.rendered import CHART, ROOT, text

EXAMPLES = ROOT / "examples" / "gitops"


def documents(name: str) -> dict[tuple[str, str], Any]:
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all((EXAMPLES / name).read_text())}


@pytest.mark.parametrize("tool", ["argocd", "flux"])
def test_the_chart_takes_the_values_and_watches_where_the_pipelines_go(tool: str) -> None:
    if tool == "argocd":
        found = documents("argocd.yaml")
        source = found["Application", "ackwright"]["spec"]["source"]
        path, values = source["path"], source["helm"]["valuesObject"]
        target = found["Application", "pipelines"]["spec"]["destination"]["namespace"]
    else:
        found = documents("flux.yaml")
        spec = found["HelmRelease", "ackwright"]["spec"]
        path, values = spec["chart"]["spec"]["chart"], spec["values"]
        target = found["Kustomization", "pipelines"]["spec"]["targetNamespace"]
    assert ROOT / path == CHART
    text(values)
    assert values["watchNamespaces"] == [target]


def test_sources_that_flux_is_told_of_are_there() -> None:
    found = documents("flux.yaml")
    named = {found["HelmRelease", "ackwright"]["spec"]["chart"]["spec"]["sourceRef"]["name"]}
    named.add(found["Kustomization", "pipelines"]["spec"]["sourceRef"]["name"])
    assert named == {name for kind, name in found if kind == "GitRepository"}


def test_the_release_that_is_named_is_this_one() -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for file in (*EXAMPLES.glob("*.yaml"), EXAMPLES / "kustomize" / "kustomization.yaml"):
        assert version in file.read_text(), file.name
