"""The CustomResourceDefinition of DeliveryPipeline, made from the models of spec and status. `make crd` writes it into crds/.

Pydantic's schema is turned into what Kubernetes calls a structural one: nothing by reference, no alternatives, absent instead of null.
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from ackwright.api.crd_fields import FIELDS, About, about_spark_conf
from ackwright.api.crd_status_fields import STATUS_FIELDS
from ackwright.api.spec import API_VERSION, KIND, Spec
from ackwright.api.status import Status

GROUP, VERSION = API_VERSION.split("/")
PLURAL = "deliverypipelines"

_ANNOTATIONS = {"title", "description"}  # of the models: written for those who read the code
_AS_THEY_ARE = {
    "enum",
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
}
_NUMBERS = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
_STRUCTURE = {"type", "default", "properties", "items", "additionalProperties", "x-kubernetes-preserve-unknown-fields"}
_LARGEST_EXACT = 2**53  # the bounds in a schema are floating-point numbers to the API server


def crd_yaml(spark_conf: Iterable[str]) -> str:
    """The committed file. spark_conf: the settings of Spark that a pipeline may set."""
    document = json.loads(
        json.dumps(crd(Spec, Status, spark_conf))
    )  # without shared parts, which YAML would write as references
    head = "# Made from operator/ackwright/api by `make crd`; a test compares them.\n"
    return head + yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=140)


def crd(spec: type[BaseModel], status: type[BaseModel], spark_conf: Iterable[str]) -> dict[str, Any]:
    """The definition, for these models. Raises ValueError if they say what a structural schema cannot, or lack a field of crd_fields."""
    fields = {**FIELDS, **STATUS_FIELDS, "spec.spark.conf": about_spark_conf(spark_conf)}
    root = {
        "type": "object",
        **_said("", fields),
        # The length is the API server's own; the name stands here for a rule to point at it.
        "properties": {
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": _schema(spec, "spec", fields),
            "status": _schema(status, "status", fields),
        },
        "required": ["spec"],
    }
    if fields:
        raise ValueError(f"described, but not in the models: {', '.join(fields)}")
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


def _condition(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")].status'


_COLUMNS = [
    _column("Guarantee", ".spec.guarantee"),
    _column("Ready", _condition("Ready")),
    _column("Met", _condition("GuaranteeMet")),
    _column("Lag", ".status.delivery.lag", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Topics", ".status.topicsReady", wide=True),
    _column("Batch", ".status.delivery.batch", "integer", wide=True),
    _column("Driver", ".status.driver.pod", wide=True),
]


def _schema(model: type[BaseModel], path: str, fields: dict[str, About]) -> dict[str, Any]:
    schema = model.model_json_schema(by_alias=True)
    return _structural(schema, schema.get("$defs", {}), path, fields)


def _said(path: str, fields: dict[str, About]) -> dict[str, Any]:
    """What crd_fields says of a field; taken out, so that in the end nothing is left."""
    about = fields.pop(path, None)
    if about is None:
        return {}
    rules = [rule.schema() for rule in about.rules]
    return {
        **({"description": about.text} if about.text else {}),
        **about.schema,
        **({"x-kubernetes-validations": rules} if rules else {}),
    }


def _structural(
    schema: Mapping[str, Any], defs: Mapping[str, Any], path: str, fields: dict[str, About]
) -> dict[str, Any]:
    schema = _resolved(schema, defs)
    strange = set(schema) - _ANNOTATIONS - _AS_THEY_ARE - _NUMBERS - _STRUCTURE - {"$defs"}
    if strange or "type" not in schema:
        raise ValueError(f"{path}: a structural schema cannot say {', '.join(sorted(strange)) or 'what has no type'}")
    found = {"type": schema["type"], **_said(path, fields)}
    found |= {name: schema[name] for name in schema if name in _AS_THEY_ARE}
    found |= _bounds(schema) if schema["type"] in ("integer", "number") else {}
    if (default := _without_empty(schema.get("default"))) is not None:
        found["default"] = default
    if "properties" in schema:
        found["properties"] = {n: _structural(s, defs, f"{path}.{n}", fields) for n, s in schema["properties"].items()}
    if "items" in schema:
        found["items"] = _structural(schema["items"], defs, f"{path}[]", fields)
    values = schema.get("additionalProperties")
    if isinstance(values, Mapping):
        found["additionalProperties"] = _structural(values, defs, f"{path}[]", fields)
    elif values:
        found["x-kubernetes-preserve-unknown-fields"] = True
    return found


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """Without references, null and const."""
    found = dict(schema)
    options = [option for option in found.pop("anyOf", ()) if option != {"type": "null"}]
    if len(options) > 1:
        raise ValueError(f"a structural schema has no alternatives: {options}")
    found = {**(options[0] if options else {}), **found}
    if "$ref" in found:
        found = {**_resolved(defs[found.pop("$ref").rpartition("/")[2]], defs), **found}
    if "const" in found:
        found["enum"] = [found.pop("const")]
    return found


def _bounds(schema: Mapping[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.0 says of a bound whether it is exclusive, JSON Schema has another name for it."""
    found: dict[str, Any] = {}
    for name, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in schema:
            found |= {name: schema[exclusive], exclusive: True}
        elif name in schema and abs(schema[name]) <= _LARGEST_EXACT:
            found[name] = schema[name]
    if schema["type"] == "integer" and "maximum" not in found:
        found["format"] = "int64"
    return found


def _without_empty(default: Any) -> Any:
    """A default without what is absent anyway; None if nothing is left."""
    if isinstance(default, Mapping):
        default = {name: rest for name, value in default.items() if (rest := _without_empty(value)) is not None}
    return None if default in ({}, []) else default
