"""What helm takes part in generating is committed in its current state. tests/unit compares the rest."""

from __future__ import annotations

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
    assert chart_files.stale(chart_files.generated(helm())) == [], "run make chart"


def test_the_charts_crd_equals_the_manifest_and_outlives_the_release() -> None:
    crd = objects()["CustomResourceDefinition", "deliverypipelines.ackwright.io"]
    manifest = yaml.load(CRD.read_text(), yaml.CSafeLoader)
    assert crd["spec"] == manifest["spec"]
    assert crd["metadata"]["annotations"] == KEEP_ANNOTATIONS
    assert "CustomResourceDefinition" not in text({"crds": {"enabled": False}})
