"""Carries out steps on Kubernetes objects. Writes only, each of them idempotent."""

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
    """The object as it is afterwards. Raises AckwrightError (NameTaken) rather than take over what is not the pipeline's."""
    wanted = dict(step.wanted)
    if step.why == "missing":
        try:
            return _typed(wanted, kubernetes.create(wanted))
        except ApiError as e:
            if e.status != 409:  # then it is there, unknown to us so far, and may be anybody's
                raise
    meta = wanted["metadata"]
    present = kubernetes.get(wanted["apiVersion"], wanted["kind"], meta["namespace"], meta["name"])
    if present is not None:
        if not _same_owner(present, wanted):
            raise AckwrightError(
                Reason.NAME_TAKEN,
                f"{wanted['kind']} {meta['name']} in {meta['namespace']} is not this pipeline's; remove it, or rename the pipeline",
            )
        _own_by_apply(kubernetes, wanted, present)
    return _typed(wanted, kubernetes.apply(wanted))


def _typed(wanted: Object, found: Object) -> Object:
    return {"apiVersion": wanted["apiVersion"], "kind": wanted["kind"], **found}


def _own_by_apply(kubernetes: Kubernetes, wanted: Object, present: Object) -> None:
    """What was created is ours by update, and what applying no longer says would stay: before the first time it becomes ours by apply.

    https://kubernetes.io/docs/reference/using-api/server-side-apply/#upgrading-from-client-side-apply-to-server-side-apply
    """
    meta = present["metadata"]
    owned = [e | {"operation": "Apply"} if _by_update(e) else e for e in meta.get("managedFields", ())]
    if owned != meta.get("managedFields", []):
        change = {"metadata": {"managedFields": owned, "resourceVersion": meta["resourceVersion"]}}
        kubernetes.merge(wanted["apiVersion"], wanted["kind"], meta["namespace"], meta["name"], change)


def _by_update(entry: Mapping[str, Any]) -> bool:
    return entry.get("manager") == FIELD_MANAGER and entry.get("operation") == "Update" and not entry.get("subresource")


def delete(kubernetes: Kubernetes, namespace: str, step: Delete) -> None:
    """A name that stands for another object by now, or for none, is fine."""
    try:
        kubernetes.delete(
            step.api_version, step.kind, namespace, step.name, uid=step.uid, grace_seconds=step.grace_seconds
        )
    except ApiError as e:
        if e.status != 409:
            raise


def finalizer(kubernetes: Kubernetes, resource: Mapping[str, Any], step: Finalizer) -> Object:
    """The resource as it is afterwards. Raises ApiError with status 409 if somebody has changed it since it was read."""
    meta = resource["metadata"]
    others = [f for f in meta.get("finalizers", ()) if f != FINALIZER]
    change = {
        "metadata": {
            "finalizers": [*others, FINALIZER] if step.wanted else others,
            "resourceVersion": meta["resourceVersion"],
        }
    }
    found = kubernetes.merge(resource["apiVersion"], resource["kind"], meta["namespace"], meta["name"], change)
    return {"apiVersion": resource["apiVersion"], "kind": resource["kind"], **found}


def tell(
    kubernetes: Kubernetes, about: Mapping[str, Any], *, reason: str, message: str, warning: bool, now: str
) -> None:
    """An Event on the pipeline. One that cannot be written is lost: the conditions say the same."""
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
            "uid": meta["uid"],
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


def _same_owner(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    uids = {o["uid"] for o in wanted["metadata"]["ownerReferences"]}
    return any(o.get("uid") in uids for o in present["metadata"].get("ownerReferences", ()))
