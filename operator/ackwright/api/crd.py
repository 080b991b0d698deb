"""The CustomResourceDefinition (CRD) of DeliveryPipeline, derived from the models of spec and status.

`make crd` writes it into crds/.

Pydantic's schema is converted into a structural one: no references, no alternatives, absent instead of null.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from ackwright.api.checks import CEL_KEY, Validation
from ackwright.api.resource import API_VERSION, KIND, DeliveryPipeline
from ackwright.api.status import Status

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "deliverypipelines"

# Copied from pydantic's schema as they are.
_COPIED = {
    "enum",
    "format",
    "maxItems",
    "maxLength",
    "maxProperties",
    "minItems",
    "minLength",
    "pattern",
    "required",
}
# What a field's declaration adds, in this order.
_DECLARED = ("description", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", CEL_KEY)
_CEL_KEYS = ("rule", "message", "messageExpression", "fieldPath")
_CONVERTED = {
    "$defs",
    "additionalProperties",
    "default",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maximum",
    "minimum",
    "properties",
    "title",
    "type",
    "x-kubernetes-preserve-unknown-fields",
}
# The API server reads the bounds in a schema as floating-point numbers.
_LARGEST_EXACT = 2**53

Schema = Mapping[str, Any]


def crd_yaml(validations: Iterable[Validation[Any]]) -> str:
    """The text of the committed file. validations: those of a pipeline as a whole (planning.validation)."""
    # YAML would write values that occur several times as references; JSON has none.
    document = json.loads(json.dumps(crd(DeliveryPipeline, Status, validations)))
    head = "# Generated from operator/ackwright/api by `make crd`; a test compares them.\n"
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=140)


def crd(
    resource: type[DeliveryPipeline], status: type[Status], validations: Iterable[Validation[Any]]
) -> dict[str, Any]:
    """The CRD for these models.

    Raises ValueError for a model that a structural schema cannot express, and for a validation of a field that does not
    exist.
    """
    root = {
        "type": "object",
        "description": resource.DESCRIPTION,
        CEL_KEY: list(resource.CEL),
        # The API server limits the length itself; the name stands here because a check reads it.
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": _spec(resource, validations),
            "status": _status(status),
        },
        "required": ["spec"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                **{"kind": KIND, "listKind": f"{KIND}List", "plural": PLURAL, "singular": KIND.lower()},
                **{"shortNames": ["dpl"], "categories": ["delivery"]},
            },
            "scope": "Namespaced",
            "versions": [
                {
                    **{"name": VERSION, "served": True, "storage": True, "subresources": {"status": {}}},
                    "additionalPrinterColumns": _COLUMNS,
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


def _condition(kind: str, field: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{kind}")].{field}'


_COLUMNS = [
    _column("Guarantee", ".status.guarantee"),
    _column("Ready", _condition("Ready")),
    _column("Status", _condition("Ready", "reason")),
    _column("Met", _condition("GuaranteeMet")),
    _column("Lag", ".status.delivery.lag", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Observed", ".status.observedAt", "date", wide=True),
    _column("Topics", ".status.topicsReady", wide=True),
    _column("Batch", ".status.delivery.batch", "integer", wide=True),
    _column("Records/s", ".status.delivery.recordsPerSecond", "number", wide=True),
    _column("Driver", ".status.driver.pod", wide=True),
    _column("Last run", ".status.schedule.lastScheduleTime", "date", wide=True),
    # No date, which kubectl shows as an age: that of a time in the future is <invalid>.
    _column("Next run", ".status.schedule.nextScheduleTime", wide=True),
    _column("Why", _condition("Ready", "message"), wide=True),
]


def _spec(resource: type[DeliveryPipeline], validations: Iterable[Validation[Any]]) -> dict[str, Any]:
    schema = resource.model_json_schema(by_alias=True)
    entries: dict[str, list[dict[str, str]]] = {}
    for path, entry in (placed for validation in validations for placed in validation.entries()):
        entries.setdefault(path, []).append(entry)
    added: dict[str, Schema] = {path: {CEL_KEY: of_path} for path, of_path in entries.items()}
    node = _structural(schema["properties"]["spec"], schema["$defs"], "spec", added)
    if added:
        raise ValueError(f"validated, but not in the models: {', '.join(added)}")
    return node


def _status(model: type[Status]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    about = {"description": model.ABOUT.description, **model.ABOUT.schema}
    return _structural({**schema, **about}, schema.get("$defs", {}), "status", {})


def _structural(schema: Schema, defs: Mapping[str, Schema], path: str, added: dict[str, Schema]) -> dict[str, Any]:
    """The structural schema of a field.

    added: more keys by path. Those of this field and of the fields below it are removed from it.
    """
    schema = _resolved(schema, defs)
    unknown = set(schema) - set(_DECLARED) - _COPIED - _CONVERTED
    if unknown or "type" not in schema:
        raise ValueError(f"{path}: not for a structural schema: {', '.join(sorted(unknown)) or 'a field without type'}")
    more = added.pop(path, {})
    checks = [
        {key: entry[key] for key in _CEL_KEYS if key in entry}
        for entry in (*schema.get(CEL_KEY, ()), *more.get(CEL_KEY, ()))
    ]
    declared = {**{key: schema[key] for key in _DECLARED if key in schema}, **more, CEL_KEY: checks}
    node = {"type": schema["type"], **{key: value for key, value in declared.items() if value}}
    node |= {key: schema[key] for key in schema if key in _COPIED}
    node |= _bounds(schema) if schema["type"] in ("integer", "number") else {}
    if (default := _without_absent(schema.get("default"))) is not None:
        node["default"] = default
    if "properties" in schema:
        node["properties"] = {
            name: _structural(below, defs, f"{path}.{name}", added) for name, below in schema["properties"].items()
        }
    if "items" in schema:
        node["items"] = _structural(schema["items"], defs, f"{path}[]", added)
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        node["additionalProperties"] = _structural(values, defs, f"{path}[]", added)
    elif values:
        node["x-kubernetes-preserve-unknown-fields"] = True
    return node


def _resolved(schema: Schema, defs: Mapping[str, Schema]) -> dict[str, Any]:
    """The schema without references, null and const."""
    resolved = dict(schema)
    options = [option for option in resolved.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) > 1:
        raise ValueError(f"a structural schema has no alternatives: {options}")
    resolved = {**(options[0] if options else {}), **resolved}
    if "$ref" in resolved:
        target = defs[resolved.pop("$ref").rpartition("/")[2]]
        resolved = {**_resolved(_without_docstring(target), defs), **resolved}
    if "const" in resolved:
        resolved["enum"] = [resolved.pop("const")]
    return resolved


def _without_docstring(model: Schema) -> dict[str, Any]:
    """The schema of a model, whose own description is the docstring: written for those who read the code."""
    return {key: value for key, value in model.items() if key != "description"}


def _bounds(schema: Schema) -> dict[str, Any]:
    """The bounds of a number. In OpenAPI 3.0 "exclusive" is a flag, in JSON Schema a separate bound."""
    bounds: dict[str, Any] = {}
    for name, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            bounds |= {name: schema[exclusive], exclusive: True}
        elif name in schema and abs(schema[name]) <= _LARGEST_EXACT:
            bounds[name] = schema[name]
    if schema["type"] == "integer" and "maximum" not in bounds:
        bounds["format"] = "int64"
    return bounds


def _without_absent(default: Any) -> Any:
    """A default without fields that are absent anyway; None if nothing is left."""
    if isinstance(default, Mapping):
        default = {name: rest for name, value in default.items() if (rest := _without_absent(value)) is not None}
    return None if default in ({}, []) else default
