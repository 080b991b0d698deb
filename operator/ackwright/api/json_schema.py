"""The JSON Schema of DeliveryPipeline, with which editors complete and check a file. Derived from the CRD. Pure.

`make crd` writes it into schemas/. It has no checks in CEL: `ackwright plan` reports those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ackwright.api.crd import GROUP, VERSION, crd
from ackwright.api.quantities import NAME
from ackwright.api.resource import API_VERSION, KIND, DeliveryPipeline
from ackwright.api.status import Status

_KUBERNETES = "x-kubernetes-"
_TEXT = {"type": "string"}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}


def schema_json() -> str:
    """The text of the committed file."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def json_schema() -> dict[str, Any]:
    """The schema of a file with one pipeline. Unknown fields of the spec are errors."""
    document = crd(DeliveryPipeline, Status, ())
    root = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"{KIND} ({GROUP}/{VERSION})",
        "description": root["description"],
        "type": "object",
        "properties": {
            "apiVersion": {"const": API_VERSION},
            "kind": {"const": KIND},
            "metadata": {
                "type": "object",
                "properties": {
                    "name": {**_TEXT, "pattern": NAME.regex},
                    "namespace": _TEXT,
                    "labels": _TEXTS,
                    "annotations": _TEXTS,
                },
                "required": ["name"],
            },
            "spec": _plain(root["properties"]["spec"]),
            # Present in the output of kubectl get -o yaml.
            "status": {"type": "object"},
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": False,
    }


def _plain(node: Mapping[str, Any]) -> dict[str, Any]:
    """A node of the CRD as JSON Schema: with bounds as numbers, closed to unknown fields, without Kubernetes' keys."""
    plain = {key: value for key, value in node.items() if not key.startswith(_KUBERNETES) and key != "format"}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if plain.get(exclusive) is True:
            plain[exclusive] = plain.pop(bound)
    if "properties" in plain:
        plain["properties"] = {name: _plain(below) for name, below in plain["properties"].items()}
        plain["additionalProperties"] = False
    if "items" in plain:
        plain["items"] = _plain(plain["items"])
    if isinstance(plain.get("additionalProperties"), Mapping):
        plain["additionalProperties"] = _plain(plain["additionalProperties"])
    return plain
