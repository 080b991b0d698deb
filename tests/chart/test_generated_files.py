"""Generated files are committed in their current state: the CRD's template, the table of values, the kustomize base."""

from __future__ import annotations

import pytest
import yaml

import chart_files
from chart.rendered import ROOT, helm, objects, text

CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"

KEEP_ANNOTATIONS = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


def test_the_output_of_make_chart_is_committed() -> None:
    stale = [
        str(path.relative_to(ROOT)) for path, text in chart_files.generated(helm()).items() if path.read_text() != text
    ]
    assert stale == [], "run make chart"


def test_the_charts_crd_equals_the_manifest_and_outlives_the_release() -> None:
    crd = objects()["CustomResourceDefinition", "deliverypipelines.ackwright.io"]
    manifest = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    assert crd["spec"] == manifest["spec"]
    assert crd["metadata"]["annotations"] == KEEP_ANNOTATIONS
    assert "CustomResourceDefinition" not in text({"crds": {"enabled": False}})


def test_the_crd_of_the_kustomize_base_equals_the_manifest_and_outlives_the_base() -> None:
    crd, manifest = (
        yaml.load(file.read_text(), yaml.CSafeLoader) for file in (ROOT / "deploy" / "base" / "crd.yaml", CRD)
    )
    assert crd["spec"] == manifest["spec"]
    assert crd["metadata"]["annotations"] == KEEP_ANNOTATIONS


def test_template_syntax_in_the_crd_is_escaped() -> None:
    crd = "# made\nmetadata:\n  name: x\nspec: {description: 'as {{ this }}'}\n"
    assert 'as {{ "{{" }} this }}' in chart_files.crd_template(crd)
    with pytest.raises(ValueError, match="begin its metadata"):
        chart_files.crd_template("# made\nmetadata: {name: x}\n")


def test_a_value_without_a_comment_is_an_error() -> None:
    assert "| `a.b` | `1` | Of it. |" in chart_files.values_table("a:\n  # Of it.\n  b: 1\n")
    with pytest.raises(ValueError, match="does not describe c"):
        chart_files.values_table("a:\n  # Of it.\n  b: 1\nc: 2\n")
