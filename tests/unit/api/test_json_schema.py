"""The JSON Schema for editors: the committed file is the generated one, and each example names it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from ackwright.api.json_schema import json_schema, schema_json
from unit.documents import EXAMPLES, ROOT

COMMITTED = ROOT / "schemas" / "deliverypipeline-v1alpha1.json"
_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": float, "boolean": bool}


def errors(schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[str]:
    """What an editor reports, of the keywords that the schema uses."""
    if "const" in schema and value != schema["const"]:
        yield f"{path}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: not one of {schema['enum']}"
    kind = schema.get("type")
    if kind and (not isinstance(value, _TYPES[kind]) or (kind == "integer" and isinstance(value, bool))):
        yield f"{path}: no {kind}"
        return
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        yield f"{path}: not of the pattern"
    if isinstance(value, int) and value < schema.get("minimum", value):
        yield f"{path}: too small"
    if isinstance(value, dict):
        yield from (f"{path}.{name}: missing" for name in schema.get("required", ()) if name not in value)
        for name, below in value.items():
            if name in schema.get("properties", {}):
                yield from errors(schema["properties"][name], below, f"{path}.{name}")
            elif schema.get("additionalProperties") is False:
                yield f"{path}.{name}: unknown"
            elif isinstance(schema.get("additionalProperties"), dict):
                yield from errors(schema["additionalProperties"], below, f"{path}.{name}")
    if isinstance(value, list):
        for i, below in enumerate(value):
            yield from errors(schema.get("items", {}), below, f"{path}[{i}]")


def nodes(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for below in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(below, dict):
            yield from nodes(below)


def test_the_committed_file_is_the_generated_one() -> None:
    assert COMMITTED.read_text() == schema_json(), "run `make crd`"


def test_it_has_only_keys_of_json_schema() -> None:
    known = {"$schema", "title", "description", "type", "properties", "required", "additionalProperties", "const"}
    known |= {"enum", "default", "items", "pattern", "minLength", "maxLength", "minItems", "maxItems", "maxProperties"}
    known |= {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    for node in nodes(json_schema()):
        assert set(node) <= known
        assert not isinstance(node.get("exclusiveMinimum"), bool)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_names_the_schema_and_fits_it(example: Path) -> None:
    [named] = re.findall(r"^# yaml-language-server: \$schema=(\S+)$", example.read_text(), re.MULTILINE)
    assert (example.parent / named).resolve() == COMMITTED
    assert list(errors(json.loads(COMMITTED.read_text()), yaml.safe_load(example.read_text()))) == []


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("guarantee", "exactly-onec", ".spec.guarantee: not one of"),
        ("guarante", "exactly-once", ".spec.guarante: unknown"),
        ("source", {"topics": "flights"}, ".spec.source.topics: no array"),
        ("source", {}, ".spec.source.topics: missing"),
        ("topics", [{"name": "a b", "partitions": 0}], ".spec.topics[0].partitions: too small"),
        ("topics", [{"name": "a b", "partitions": 1}], ".spec.topics[0].name: not of the pattern"),
    ],
)
def test_editors_report_what_is_wrong(path: str, value: object, error: str) -> None:
    document = yaml.safe_load(EXAMPLES[0].read_text())
    document["spec"][path] = value
    assert [e for e in errors(json_schema(), document) if e.startswith(error)]
