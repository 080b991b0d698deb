"""What is made of other files is what is committed: the CRD's template, the table of values, the kustomize base."""

from __future__ import annotations

import pytest
import yaml

import chart_files
from chart.rendered import ROOT, helm, objects, text

CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"

KEPT = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


def test_what_make_chart_makes_is_committed() -> None:
    stale = [
        str(path.relative_to(ROOT))
        for path, wanted in chart_files.generated(helm()).items()
        if path.read_text() != wanted
    ]
    assert stale == [], "run make chart"


def test_the_definition_of_the_chart_is_the_manifest_and_stays_when_the_release_goes() -> None:
    found = objects()["CustomResourceDefinition", "deliverypipelines.ackwright.io"]
    manifest = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    assert found["spec"] == manifest["spec"]
    assert found["metadata"]["annotations"] == KEPT
    assert "CustomResourceDefinition" not in text({"crds": {"enabled": False}})


def test_so_does_that_of_the_base() -> None:
    found, manifest = (
        yaml.load(file.read_text(), yaml.CSafeLoader) for file in (ROOT / "deploy" / "base" / "crd.yaml", CRD)
    )
    assert found["spec"] == manifest["spec"]
    assert found["metadata"]["annotations"] == KEPT


def test_what_looks_like_a_template_in_the_definition_is_escaped() -> None:
    crd = "# made\nmetadata:\n  name: x\nspec: {description: 'as {{ this }}'}\n"
    assert 'as {{ "{{" }} this }}' in chart_files.crd_template(crd)
    with pytest.raises(ValueError, match="begin its metadata"):
        chart_files.crd_template("# made\nmetadata: {name: x}\n")


def test_a_value_without_a_comment_is_an_error() -> None:
    assert "| `a.b` | `1` | Of it. |" in chart_files.values_table("a:\n  # Of it.\n  b: 1\n")
    with pytest.raises(ValueError, match="does not describe c"):
        chart_files.values_table("a:\n  # Of it.\n  b: 1\nc: 2\n")
