"""Files of the chart and of the kustomize base that are generated without helm are committed in their current state."""

from __future__ import annotations

import pytest
import yaml

import chart_files


def test_the_output_of_make_chart_is_committed() -> None:
    assert chart_files.stale(chart_files.generated_without_helm()) == [], "run make crd chart"


def test_a_stale_file_is_named() -> None:
    path, text = next(iter(chart_files.generated_without_helm().items()))
    assert chart_files.stale({path: text + "more"}) == [str(path.relative_to(chart_files.ROOT))]


def test_the_crd_of_the_kustomize_base_equals_the_manifest_and_outlives_the_base() -> None:
    crd, manifest = (
        yaml.load(file.read_text(), yaml.CSafeLoader) for file in (chart_files.BASE / "crd.yaml", chart_files.CRD)
    )
    assert crd["spec"] == manifest["spec"]
    assert set(crd["metadata"]["annotations"]) == {
        "helm.sh/resource-policy",
        "argocd.argoproj.io/sync-options",
        "kustomize.toolkit.fluxcd.io/prune",
    }


def test_template_syntax_in_the_crd_is_escaped() -> None:
    crd = "# made\nmetadata:\n  name: x\nspec: {description: 'as {{ this }}'}\n"
    assert 'as {{ "{{" }} this }}' in chart_files.crd_template(crd)
    with pytest.raises(ValueError, match="begin its metadata"):
        chart_files.crd_template("# made\nmetadata: {name: x}\n")


def test_a_value_without_a_comment_is_an_error() -> None:
    assert "| `a.b` | `1` | Of it. |" in chart_files.values_table("a:\n  # Of it.\n  b: 1\n")
    with pytest.raises(ValueError, match="does not describe c"):
        chart_files.values_table("a:\n  # Of it.\n  b: 1\nc: 2\n")
