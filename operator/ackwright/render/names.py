"""Names, labels and owner references of the operator's objects. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ackwright.api.spec import API_VERSION, KIND, DeliveryPipeline

Object = dict[str, Any]

MANAGED_BY = "ackwright"
PIPELINE_LABEL = "ackwright.io/pipeline"
ROLE_LABEL = "ackwright.io/role"
HASH_ANNOTATION = "ackwright.io/rendered"
FINALIZER = "ackwright.io/topics"


def labels(name: str, role: str) -> dict[str, str]:
    """The labels of an object with this role.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
    """
    return {
        "app.kubernetes.io/name": "ackwright-pipeline",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
        PIPELINE_LABEL: name,
        ROLE_LABEL: role,
    }


def selector(name: str, role: str) -> dict[str, str]:
    """The labels that select the pods with this role."""
    return {PIPELINE_LABEL: name, ROLE_LABEL: role}


def owned(
    pipeline: DeliveryPipeline, uid: str, *, api_version: str, kind: str, name: str, role: str, **content: Any
) -> Object:
    """An object that Kubernetes deletes with the pipeline. It has a hash of its rendered content, so that an older
    rendering can be distinguished from drift."""
    rendered: Object = {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": pipeline.metadata.namespace,
            "labels": labels(pipeline.metadata.name, role),
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": KIND,
                    "name": pipeline.metadata.name,
                    "uid": uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        **content,
    }
    rendered["metadata"]["annotations"] = {HASH_ANNOTATION: digest(rendered)}
    return rendered


def digest(value: Mapping[str, Any] | str) -> str:
    """A digest of a value. Equal values have equal digests, whatever the order of their keys."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
