"""Takes the steps on Kubernetes objects. Writes only; each step is idempotent."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from ackwright.clients.kubernetes import FIELD_MANAGER, ApiError, Kubernetes
from ackwright.errors import AckwrightError
from ackwright.planning.steps import Apply, Delete, Finalizer
from ackwright.render.names import FINALIZER
from ackwright_stream.jobspec import Reason

Object = dict[str, Any]


def apply(kubernetes: Kubernetes, step: Apply) -> Object:
    """Creates or updates the object; returns it.

    Raises AckwrightError (NameTaken) if another owner has an object of this name.
    """
    desired = dict(step.desired)
    if step.why == "missing":
        try:
            return _typed(desired, kubernetes.create(desired))
        except ApiError as e:
            if e.status != 409:  # 409: it exists, has not been observed yet, and may belong to another owner
                raise
    meta = desired["metadata"]
    present = kubernetes.get(desired["apiVersion"], desired["kind"], meta["namespace"], meta["name"])
    if present is not None:
        if not _same_owner(present, desired):
            raise AckwrightError(
                Reason.NAME_TAKEN,
                f"{desired['kind']} {meta['name']} in namespace {meta['namespace']} does not belong to this pipeline; "
                "delete it, or rename the pipeline",
            )
        _own_by_apply(kubernetes, desired, present)
    return _typed(desired, kubernetes.apply(desired))


def _typed(desired: Object, answer: Object) -> Object:
    """The answer with its type, which some answers lack."""
    return {"apiVersion": desired["apiVersion"], "kind": desired["kind"], **answer}


def _own_by_apply(kubernetes: Kubernetes, desired: Object, present: Object) -> None:
    """Turns the operator's ownership of fields from "update", as left by a creation, into "apply".

    Otherwise a later apply would not remove fields that it no longer contains.
    https://kubernetes.io/docs/reference/using-api/server-side-apply/#upgrading-from-client-side-apply-to-server-side-apply
    """
    meta = present["metadata"]
    owned = [e | {"operation": "Apply"} if _by_update(e) else e for e in meta.get("managedFields", ())]
    if owned != meta.get("managedFields", []):
        change = {"metadata": {"managedFields": owned, "resourceVersion": meta["resourceVersion"]}}
        kubernetes.merge(desired["apiVersion"], desired["kind"], meta["namespace"], meta["name"], change)


def _by_update(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Update" and not entry.get("subresource")


def delete(kubernetes: Kubernetes, namespace: str, step: Delete) -> None:
    """Deletes the object, unless its name belongs to another object by now, or to none."""
    try:
        kubernetes.delete(
            step.api_version, step.kind, namespace, step.name, uid=step.uid, grace_seconds=step.grace_seconds
        )
    except ApiError as e:
        if e.status != 409:
            raise


def finalizer(kubernetes: Kubernetes, resource: Mapping[str, Any], step: Finalizer) -> Object:
    """Adds or removes the finalizer; returns the resource.

    Raises ApiError with status 409 if it has changed since it was read.
    """
    meta = resource["metadata"]
    others = [f for f in meta.get("finalizers", ()) if f != FINALIZER]
    change = {
        "metadata": {
            "finalizers": [*others, FINALIZER] if step.present else others,
            "resourceVersion": meta["resourceVersion"],
        }
    }
    answer = kubernetes.merge(resource["apiVersion"], resource["kind"], meta["namespace"], meta["name"], change)
    return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], **answer}


def write_event(
    kubernetes: Kubernetes, about: Mapping[str, Any], *, reason: str, message: str, warning: bool, now: str
) -> None:
    """Writes an Event about an object, in its namespace. If that fails the Event is lost: conditions or log have it."""
    meta = about["metadata"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{uuid.uuid4().hex[:16]}", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            "name": meta["name"],
            "namespace": meta["namespace"],
            **({"uid": meta["uid"]} if "uid" in meta else {}),
        },
        "reason": reason,
        "message": message[:1000] or reason,
        "type": "Warning" if warning else "Normal",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
        "source": {"component": "ackwright"},
        "reportingComponent": "ackwright",
    }
    try:
        kubernetes.create(event)
    except ApiError:
        return


def operator_of(own_namespace: str) -> Object:
    """The operator's Deployment, for Events about namespaces in which none can be written."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "ackwright-operator", "namespace": own_namespace},
    }


def _same_owner(present: Mapping[str, Any], desired: Mapping[str, Any]) -> bool:
    uids = {o["uid"] for o in desired["metadata"]["ownerReferences"]}
    return any(o.get("uid") in uids for o in present["metadata"].get("ownerReferences", ()))
