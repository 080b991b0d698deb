"""`make chart`: generates the CRD's template, a dashboard, the README's table of values, and the kustomize base."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

import dashboards

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "ackwright"
CRD = ROOT / "crds" / "deliverypipelines.ackwright.io.yaml"
BASE = ROOT / "deploy" / "base"
sys.path.insert(0, str(ROOT / "tests"))  # the lab builds helm
KUBERNETES = "1.34.0"  # the default of helm is an old version
# The base has one namespace, which kustomize may rename, and no test of a release.
_TEMPLATE = (
    "template",
    "ackwright",
    str(CHART),
    "--namespace",
    "ackwright-system",
    "--kube-version",
    KUBERNETES,
    "--no-hooks",
    "--set",
    "settings.ALLOW_OWN_NAMESPACE=true",
)
_GENERATED = "# Generated from {} by `make chart`; a test compares them.\n"
# For each tool that installs the CRD: deleting it would delete every pipeline.
_PROTECTION = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}
_BEGIN, _END = "<!-- values -->\n", "<!-- /values -->\n"


def crd_template(crd: str) -> str:
    """The CRD as a template. crd: the manifest."""
    body = protected(crd, '  labels: {{- include "ackwright.labels" . | nindent 4 }}\n', escape=True)
    return "{{- if .Values.crds.enabled }}\n" + body + "{{- end }}\n"


def protected(crd: str, labels: str = "", *, escape: bool = False) -> str:
    """The manifest with annotations that keep the CRD when the tool that installed it removes the rest."""
    body = crd.split("\n", 1)[1]  # without the first line, which says how it is generated
    head, name, rest = body.partition(f"metadata:\n  name: {yaml.safe_load(crd)['metadata']['name']}\n")
    if not name:
        raise ValueError("the manifest does not begin its metadata with its name")
    annotations = "  annotations:\n" + "".join(f"    {k}: {v}\n" for k, v in _PROTECTION.items())
    if escape:
        head, rest = (part.replace("{{", '{{ "{{" }}') for part in (head, rest))
    return _GENERATED.format("crds/") + head + name + labels + annotations + rest


def values_table(values: str) -> str:
    """A Markdown table: every value with its default and the comment above it. Raises ValueError without a comment."""
    root = yaml.compose(values, yaml.SafeLoader)
    if root is None:
        raise ValueError("the chart's values are empty; restore charts/ackwright/values.yaml")
    rows = [f"| `{name}` | {default} | {text} |" for name, default, text in _rows(root, values, "")]
    return "\n".join(("| value | default | |", "|---|---|---|", *rows)) + "\n"


def _rows(node: yaml.Node, values: str, prefix: str) -> Iterator[tuple[str, str, str]]:
    lines = values.splitlines()
    for key, value in node.value:
        name, line = f"{prefix}{key.value}", key.start_mark.line
        text = _comment(lines, line)
        below = value.value if isinstance(value, yaml.MappingNode) else ()
        if any(k.start_mark.line > line and _comment(lines, k.start_mark.line) for k, _ in below):
            if text:
                yield name, "", text
            yield from _rows(value, values, f"{name}.")
        elif text:
            yield name, f"`{_default(value)}`", text
        else:
            raise ValueError(f"values.yaml does not describe {name}; write a comment above it")


def _comment(lines: list[str], key: int) -> str:
    first = key
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(line.strip().removeprefix("# ") for line in lines[first:key])


def _default(node: yaml.Node) -> str:
    value = yaml.SafeLoader("").construct_object(node, deep=True)
    return yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False).removesuffix("...\n").strip()


def readme(text: str, values: str) -> str:
    """The README with the table between its markers."""
    before, rest = text.split(_BEGIN)
    return before + _BEGIN + values_table(values) + _END + rest.split(_END)[1]


def operator(rendered: str) -> str:
    """The objects of the kustomize base, without the CRD. rendered: the output of helm with the chart's defaults."""
    objects = [o for o in yaml.safe_load_all(rendered) if o and o["kind"] != "CustomResourceDefinition"]
    for o in objects:
        for labels in (
            o["metadata"]["labels"],
            o.get("spec", {}).get("template", {}).get("metadata", {}).get("labels", {}),
        ):
            labels.pop("app.kubernetes.io/managed-by", None)  # kustomize does, not helm
    return _GENERATED.format("charts/ackwright") + yaml.safe_dump_all(objects, sort_keys=False, width=140)


def generated_without_helm() -> Mapping[Path, str]:
    """Every file that takes no helm to generate, with its text."""
    crd = CRD.read_text()
    return {
        CHART / "templates" / "crd.yaml": crd_template(crd),
        CHART / "README.md": readme((CHART / "README.md").read_text(), (CHART / "values.yaml").read_text()),
        CHART / "dashboards" / "ackwright.json": dashboards.fleet(),
        CHART / "dashboards" / "ackwright-pipeline.json": dashboards.pipeline(),
        BASE / "crd.yaml": protected(crd),
    }


def generated(helm: Path) -> Mapping[Path, str]:
    """Every generated file with its text. helm: the program."""
    rendered = subprocess.run([helm, *_TEMPLATE], capture_output=True, text=True, check=True, timeout=60).stdout
    return {**generated_without_helm(), BASE / "operator.yaml": operator(rendered)}


def stale(files: Mapping[Path, str]) -> list[str]:
    """The files that differ from their text."""
    return [str(path.relative_to(ROOT)) for path, text in files.items() if path.read_text() != text]


def main() -> None:
    from lab import binaries

    for path, text in generated(binaries.program("helm", lambda line: print(line, file=sys.stderr))).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
