"""Kubernetes in memory: an API server with server-side apply, and the controllers that make and remove pods.

Nothing happens by itself: what the operator asks for is stored, and `run` lets the controllers act. With the switches it fails: `die` ends
the operator before or after a certain write, `refuse` has calls fail as the API server would.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ackwright.clients.kubernetes import FIELD_MANAGER, ApiError, Kubernetes
from ackwright.render.names import FINALIZER, digest

Object = dict[str, Any]

NOW = "2026-11-21T12:00:00Z"
_OWNERS = ("StatefulSet", "Job")
_KEYS = {
    **dict.fromkeys(("containers", "env", "imagePullSecrets", "ports", "volumes"), "name"),
    "ownerReferences": "uid",
    "volumeMounts": "mountPath",
}
_FIXED = {
    "ConfigMap": ("data",),
    "Job": ("spec", "template"),
    "RoleBinding": ("roleRef",),
    "StatefulSet": ("spec", "serviceName"),
}


class Killed(BaseException):
    """The operator ends here."""


class FakeKubernetes(Kubernetes):
    """stored: objects by kind and name, all of one namespace. writes: what was written; events: reason and message. ready: whether pods
    become ready; lost: names of pods on a node that does not answer. die: number of the write at which the operator ends, after it if
    die_after. refuse: an error for each "verb Kind"."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], Object] = {}
        self.writes: list[str] = []
        self.events: list[tuple[str, str]] = []
        self.ready = True
        self.lost: set[str] = set()
        self.die: int | None = None
        self.die_after = False
        self.refuse: dict[str, ApiError] = {}
        self._ours: dict[tuple[str, str], Object] = {}
        self._created: dict[tuple[str, str], Object] = {}
        self._numbers = itertools.count(1)

    # -- what the operator calls -----------------------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        return _copy(self.stored.get((kind, name)))

    def apply(self, wanted: Object) -> Object:
        key = wanted["kind"], wanted["metadata"]["name"]
        with self.write("apply", key):
            present = self.stored.get(key)
            found = _merged(present or {"metadata": {"creationTimestamp": NOW}}, _copy(wanted), self._ours.get(key, {}))
            if present and _fixed(present) != _fixed(found):
                raise ApiError(422, f"{key}: field is immutable")
            self._ours[key] = _copy(wanted)
            if found != present:
                self._store(_with_defaults(found))
        return _copy(self.stored[key])

    def create(self, wanted: Object) -> Object:
        if wanted["kind"] == "Event":
            self.events.append((wanted["reason"], wanted["message"]))
            return wanted
        key = wanted["kind"], wanted["metadata"]["name"]
        with self.write("create", key):
            if key in self.stored:
                raise ApiError(409, "it exists")
            found = _with_defaults(_copy(wanted))
            found["metadata"] |= {
                "creationTimestamp": NOW,
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Update"}],
            }
            self._created[key] = _copy(wanted)
            self._store(found)
        return _copy(self.stored[key])

    def merge(self, api_version: str, kind: str, namespace: str, name: str, change: Object) -> Object:
        with self.write("merge", (kind, name)):
            found = self._current(kind, name, change["metadata"].get("resourceVersion"))
            found["metadata"] |= change["metadata"]
            if {"manager": FIELD_MANAGER, "operation": "Apply"} in change["metadata"].get("managedFields", ()):
                self._ours[kind, name] = self._created[kind, name]
            self._store(found)
        return _copy(found)

    def put_status(self, changed: Object) -> Object:
        kind, name = changed["kind"], changed["metadata"]["name"]
        with self.write("status", (kind, name)):
            found = self._current(kind, name, changed["metadata"]["resourceVersion"])
            found["status"] = _copy(changed["status"])
            self._store(found)
        return _copy(found)

    def delete(
        self,
        api_version: str,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_seconds: int | None = None,
    ) -> None:
        with self.write("delete", (kind, name)):
            found = self.stored.get((kind, name))
            if found is None:
                return
            if uid and uid != found["metadata"]["uid"]:
                raise ApiError(409, "the uid in the precondition is another one")
            if grace_seconds == 0 or kind not in (*_OWNERS, "Pod"):
                self.vanish(kind, name)
            else:
                found["metadata"].setdefault("deletionTimestamp", NOW)

    # -- what others do --------------------------------------------------------------------------------------------------------

    def declare(self, name: str, spec: Mapping[str, Any], namespace: str = "ops") -> Object:
        """A user applies a pipeline; returns it as stored."""
        key = "DeliveryPipeline", name
        meta = {"name": name, "namespace": namespace, "generation": 0}
        found = self.stored.get(key) or {"apiVersion": "ackwright.io/v1alpha1", "kind": key[0], "metadata": meta}
        if found.get("spec") != spec:
            found["spec"] = _copy(dict(spec))
            found["metadata"]["generation"] += 1
            self._store(found)
        return _copy(found)

    def vanish(self, kind: str, name: str) -> None:
        self.stored.pop((kind, name), None)
        self._ours.pop((kind, name), None)

    def pods(self) -> list[Object]:
        return [o for (kind, _), o in self.stored.items() if kind == "Pod"]

    def children(self) -> list[Object]:
        """What carries the operator's label, as the watches bring it."""
        return [_copy(o) for (kind, _), o in self.stored.items() if kind != "DeliveryPipeline"]

    def lose_node(self, pod: str) -> None:
        """The pod's node does not answer any more, and Kubernetes has given the pod up."""
        found = self.stored["Pod", pod]
        found["metadata"]["deletionTimestamp"] = NOW
        found["status"]["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        )
        self.lost.add(found["metadata"]["uid"])

    def run(self) -> bool:
        """The controllers act once. Whether anything has changed."""
        before = json.dumps([*self.stored.values()])
        uids = {o["metadata"]["uid"] for o in self.stored.values()}
        for pod in self.pods():
            if pod["metadata"]["ownerReferences"][0]["uid"] not in uids:
                pod["metadata"].setdefault("deletionTimestamp", NOW)
        for key, found in list(self.stored.items()):
            meta = found["metadata"]
            held = key[0] in _OWNERS or FINALIZER in meta.get("finalizers", ()) or meta["uid"] in self.lost
            if meta.get("deletionTimestamp") and not held:
                self.vanish(*key)
        for found in [o for (kind, _), o in self.stored.items() if kind in _OWNERS]:
            self._control(found)
        for pod in self.pods():
            if self.ready and not pod["metadata"].get("deletionTimestamp"):
                pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        return before != json.dumps([*self.stored.values()])

    # -- inside ----------------------------------------------------------------------------------------------------------------

    @contextmanager
    def write(self, verb: str, key: tuple[str, str]) -> Iterator[None]:
        """A write, numbered, before or after which the operator may be killed."""
        what = f"{verb} {key[0]}"
        number = len(self.writes)
        if self.die == number and not self.die_after:
            raise Killed
        if what in self.refuse:
            raise self.refuse[what]
        self.writes.append(f"{what} {key[1]}")
        yield
        if self.die == number and self.die_after:
            raise Killed

    def _current(self, kind: str, name: str, version: str | None) -> Object:
        found = _copy(self.stored[kind, name])
        if version not in (None, found["metadata"]["resourceVersion"]):
            raise ApiError(409, "the object has been modified")
        return found

    def _store(self, found: Object) -> None:
        number = next(self._numbers)
        found["metadata"].setdefault("uid", f"uid-{number}")
        found["metadata"]["resourceVersion"] = str(number)
        if found["kind"] == "StatefulSet":  # the one of whose generation anything is asked
            known = self.stored.get((found["kind"], found["metadata"]["name"]))
            same = known is not None and known["spec"] == found["spec"]
            found["metadata"]["generation"] = found["metadata"].get("generation", 0) + (not same)
        self.stored[found["kind"], found["metadata"]["name"]] = found

    def _control(self, owner: Object) -> None:
        meta, spec = owner["metadata"], owner["spec"]
        endless = owner["kind"] == "StatefulSet"
        own = [p for p in self.pods() if p["metadata"]["ownerReferences"][0]["uid"] == meta["uid"]]
        revision = digest(spec["template"])
        if endless:
            owner["status"] = {"updateRevision": revision, "observedGeneration": meta.get("generation", 0)}
        if meta.get("deletionTimestamp") and not own:
            self.vanish(owner["kind"], meta["name"])
            return
        wanted = not meta.get("deletionTimestamp") and (spec["replicas"] == 1 if endless else not spec["suspend"])
        if wanted and not own and ("Pod", _pod_name(owner)) not in self.stored:
            self._store(_pod(owner, revision if endless else None))
        for pod in own:
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
            outdated = endless and ready and pod["metadata"]["labels"]["controller-revision-hash"] != revision
            if outdated or not wanted:
                pod["metadata"].setdefault("deletionTimestamp", NOW)


def _copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _with_defaults(found: Object) -> Object:
    """What the API server adds of its own."""
    pod = found.get("spec", {}).get("template", {}).get("spec", {})
    if pod:
        pod.setdefault("dnsPolicy", "ClusterFirst")
        for container in pod["containers"]:
            container.setdefault("terminationMessagePath", "/dev/termination-log")
    return found


def _merged(present: Any, wanted: Any, before: Any, key: str | None = None) -> Any:
    """Server-side apply: what we no longer want goes, what others have set stays. before: what we wanted the last time."""
    if isinstance(wanted, dict) and isinstance(present, dict):
        before = before if isinstance(before, dict) else {}
        kept = {k: v for k, v in present.items() if k in wanted or k not in before}
        return kept | {k: _merged(present.get(k), v, before.get(k), _KEYS.get(k)) for k, v in wanted.items()}
    if key and isinstance(present, list):
        there, earlier = ({i[key]: i for i in items or ()} for items in (present, before))
        mine = [_merged(there.get(i[key]), i, earlier.get(i[key])) for i in wanted]
        names = {i[key] for i in wanted}
        return mine + [i for k, i in there.items() if k not in names and k not in earlier]
    return wanted


def _fixed(found: Object) -> Any:
    """The part that cannot be changed."""
    if found["kind"] == "ConfigMap" and not found.get("immutable"):
        return None
    value: Any = found
    for name in _FIXED.get(found["kind"], ("apiVersion",)):
        value = value[name]
    return value


def _pod_name(owner: Object) -> str:
    return owner["metadata"]["name"] + ("-0" if owner["kind"] == "StatefulSet" else "-x7k2p")


def _pod(owner: Object, revision: str | None) -> Object:
    template, meta = _copy(owner["spec"]["template"]), owner["metadata"]
    labels = template["metadata"]["labels"] | ({"controller-revision-hash": revision} if revision else {})
    reference = {"kind": owner["kind"], "name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _pod_name(owner),
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [reference],
        },
        "spec": template["spec"] | {"nodeName": "node-1"},
        "status": {"phase": "Running", "podIP": "192.0.2.7", "conditions": []},
    }
