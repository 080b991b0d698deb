"""`make reference`: pages of the documentation that are made of the code: the resource's fields, the command line, the metrics."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from prometheus_client.core import Metric

from ackwright.api.crd import crd
from ackwright.api.spec import Spec
from ackwright.api.status import Status
from ackwright.cli.main import COMMANDS, cli
from ackwright.metrics import Metrics
from ackwright.planning.conf import ALLOWED
from ackwright.planning.plan import load
from ackwright.render.jobspec import jobspec
from ackwright_stream.positions import Lane
from ackwright_stream.progress import Progress, ProgressMetrics

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "reference"
_EXAMPLE_FILE = ROOT / "examples" / "delayed-flights-exactly-once.yaml"
_MADE = "<!-- Made by `make reference`; a test compares them. -->\n"
_WIDTH = 110  # characters, of the help texts


def pages() -> Mapping[str, str]:
    """The text of each page, by its file's name."""
    return {"resource.md": resource(), "cli.md": command_line(), "metrics.md": metrics()}


def resource() -> str:
    """Every field of a DeliveryPipeline, with the rules that the API server checks."""
    definition = crd(Spec, Status, ALLOWED)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    lines = [
        "# The resource, field by field",
        "",
        f"`{definition['metadata']['name']}`, version v1alpha1. {schema['description']}",
        "",
    ]
    lines += ["*Required* fields are in bold. In a cluster `kubectl explain dpl.spec` says the same."]
    for part in ("spec", "status"):
        found = schema["properties"][part]
        lines += ["", f"## {part}", "", "| field | type | default | |", "|---|---|---|---|"]
        lines += [_row(*field) for field in _fields(found, part)]
    lines += [
        "",
        "## Rules",
        "",
        "What the API server refuses at once, in these words.",
        "",
        "| of | rule |",
        "|---|---|",
    ]
    rules = [("metadata", r) for r in schema.get("x-kubernetes-validations", ())]
    rules += [
        (path, r)
        for path, s, _ in _fields(schema["properties"]["spec"], "spec")
        for r in s.get("x-kubernetes-validations", ())
    ]
    rules += [("spec", r) for r in schema["properties"]["spec"].get("x-kubernetes-validations", ())]
    lines += [f"| `{path}` | {_cell(rule['message'])} |" for path, rule in rules]
    return _page(lines)


def _fields(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field, name in schema.get("required", ())
        yield from _fields(field, f"{path}.{name}")
        yield from _fields(field.get("items", {}), f"{path}.{name}[]")


def _row(path: str, schema: Mapping[str, Any], required: bool) -> str:
    shown = f"**`{path}`**" if required else f"`{path}`"
    default = f"`{_text(schema['default'])}`" if "default" in schema else ""
    return f"| {shown} | {_cell(_type(schema))} | {_cell(default)} | {_cell(schema.get('description', ''))} |"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_type(schema['items'])}"
    if schema["type"] == "object":
        return (
            "map" if "additionalProperties" in schema or "x-kubernetes-preserve-unknown-fields" in schema else "object"
        )
    bounds = [f"{sign} {schema[name]}" for name, sign in (("minimum", "≥"), ("maximum", "≤")) if name in schema]
    return " ".join([schema["type"], ", ".join(bounds)]).strip()


def _text(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def command_line() -> str:
    """The help of every command."""
    lines = [
        "# The command line",
        "",
        "Also `kubectl ackwright …`. What commands end with is in [exit codes](../exit-codes.md).",
    ]
    root = click.Context(cli, info_name="ackwright", terminal_width=_WIDTH, help_option_names=["-h", "--help"])
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None, name  # noqa: S101
        context = click.Context(command, info_name=name, parent=root, terminal_width=_WIDTH)
        lines += ["", f"## ackwright {name}", "", "```text", command.get_help(context), "```"]
    return _page(lines)


def metrics() -> str:
    """Every metric of the operator and of drivers."""
    operator = Metrics(lambda: {("ops", "flights"): _EXAMPLE}, lambda: 0)
    operator.errors.labels("Unexpected").inc()
    driver = Progress(replace(jobspec(load(_EXAMPLE_FILE)[1], master="local", secrets=None), name="flights"))
    driver.batch(1, {Lane("in", 0): 1}, 1, 1.0)
    parts: tuple[tuple[str, str, Iterable[Metric]], ...] = (
        ("The operator", "Port 8080 of its pod (`ACKWRIGHT_METRICS_PORT`).", operator.registry.collect()),
        (
            "A driver",
            "Port 8090 of its pod; `ackwright run --progress-port` here. Counters count since the process began.",
            ProgressMetrics(driver).collect(),
        ),
    )
    lines = ["# Metrics"]
    for title, where, families in parts:
        lines += [
            "",
            f"## {title}",
            "",
            f"{where} Path `/metrics`.",
            "",
            "| metric | type | labels | |",
            "|---|---|---|---|",
        ]
        lines += [_metric(family) for family in families]
    return _page(lines)


_TOPIC = {"name": "in", "partitions": 1, "replicationFactor": 3, "minInsyncReplicas": 2, "inSyncReplicas": 3}
_EXAMPLE = {
    "status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "Delivering"}],
        "topics": [_TOPIC],
        "delivery": {"lag": 0, "batch": 1},
    }
}


def _metric(family: Metric) -> str:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = list(dict.fromkeys(label for sample in family.samples for label in sample.labels if label != "le"))
    return f"| `{name}` | {family.type} | {', '.join(f'`{x}`' for x in labels)} | {_cell(family.documentation)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "\\<")


def _page(lines: list[str]) -> str:
    return _MADE + "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


def main() -> int:
    PLACE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (PLACE / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
