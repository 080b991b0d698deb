"""Kubernetes in memory: an API server with server-side apply, and the controllers that create and remove pods.

Nothing happens by itself: requests of the operator are stored, and `run` lets the controllers act. Switches make it
fail: `die` kills the operator before or after a certain write, `refuse` makes calls fail as the API server would.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from ackwright.clients.kubernetes import FIELD_MANAGER, ApiError, Kubernetes
from ackwright.planning.observed import is_complete
from ackwright.render.check import CHECK_ROLE
from ackwright.render.names import FINALIZER, ROLE_LABEL, digest
from ackwright_stream.reports import Ending

Object = dict[str, Any]
T = TypeVar("T")

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
    """Kills the operator."""


class FakeKubernetes(Kubernetes):
    """One namespace of a cluster, and switches that make calls fail."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, str], Object] = {}  # by kind and name
        self.writes: list[str] = []
        self.recorded: list[tuple[str, str]] = []  # reason and message of each
        self.now = NOW  # when objects are created
        self.ready = True  # whether pods become ready
        self.check_ending: Ending | None = Ending(0)  # of each pod that checks an edit; None: it runs on
        self.lost: set[str] = set()  # uids of pods on a node that does not answer
        self.die: int | None = None  # number of the write at which the operator is killed
        self.die_after = False  # after that write, and not before it
        self.refuse: dict[str, ApiError] = {}  # an error for each "verb Kind"
        self._ours: dict[tuple[str, str], Object] = {}
        self._created: dict[tuple[str, str], Object] = {}
        self._numbers = itertools.count(1)

    # -- calls of the operator ---------------------------------------------------------------------------------

    def get(self, api_version: str, kind: str, namespace: str, name: str) -> Object | None:
        if kind == "Namespace" and (kind, name) not in self.stored:
            return {"metadata": {"name": name, "uid": f"uid-of-{name}"}}
        return _copy(self.stored.get((kind, name)))

    def apply(self, desired: Object) -> Object:
        key = desired["kind"], desired["metadata"]["name"]
        with self.write("apply", key):
            present = self.stored.get(key)
            new = {"metadata": {"creationTimestamp": self.now}}
            item = _merged(present or new, _copy(desired), self._ours.get(key, {}))
            if present and _fixed(present) != _fixed(item):
                raise ApiError(422, f"{key}: field is immutable")
            self._ours[key] = _copy(desired)
            if item != present:
                self._store(_with_defaults(item))
        return _copy(self.stored[key])

    def create(self, desired: Object, *, dry_run: bool = False) -> Object:
        assert not dry_run
        if desired["kind"] == "Event":
            self.recorded.append((desired["reason"], desired["message"]))
            return desired
        key = desired["kind"], desired["metadata"]["name"]
        with self.write("create", key):
            if key in self.stored:
                raise ApiError(409, "it exists")
            item = _with_defaults(_copy(desired))
            item["metadata"] |= {
                "creationTimestamp": self.now,
                "managedFields": [{"manager": FIELD_MANAGER, "operation": "Update"}],
            }
            if desired["kind"] == "Pod":
                item["status"] = {"phase": "Pending", "conditions": []}
            self._created[key] = _copy(desired)
            self._store(item)
        return _copy(self.stored[key])

    def merge(
        self, api_version: str, kind: str, namespace: str, name: str, change: Object, *, dry_run: bool = False
    ) -> Object:
        assert not dry_run
        with self.write("merge", (kind, name)):
            item = self._current(kind, name, change["metadata"].get("resourceVersion"))
            item["metadata"] |= change["metadata"]
            if {"manager": FIELD_MANAGER, "operation": "Apply"} in change["metadata"].get("managedFields", ()):
                self._ours[kind, name] = self._created[kind, name]
            self._store(item)
        return _copy(item)

    def put_status(self, changed: Object) -> Object:
        kind, name = changed["kind"], changed["metadata"]["name"]
        with self.write("status", (kind, name)):
            item = self._current(kind, name, changed["metadata"]["resourceVersion"])
            item["status"] = _copy(changed["status"])
            self._store(item)
        return _copy(item)

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
            item = self.stored.get((kind, name))
            if item is None:
                return
            if uid and uid != item["metadata"]["uid"]:
                raise ApiError(409, "the uid in the precondition is another one")
            if grace_seconds == 0 or kind not in (*_OWNERS, "Pod"):
                self.vanish(kind, name)
            else:
                item["metadata"].setdefault("deletionTimestamp", NOW)

    # -- actions of others -------------------------------------------------------------------------------------

    def declare(self, name: str, spec: Mapping[str, Any], namespace: str = "ops") -> Object:
        """A user applies a pipeline; returns it as stored."""
        key = "DeliveryPipeline", name
        meta = {"name": name, "namespace": namespace, "generation": 0}
        item = self.stored.get(key) or {"apiVersion": "ackwright.io/v1alpha1", "kind": key[0], "metadata": meta}
        if item.get("spec") != spec:
            item["spec"] = _copy(dict(spec))
            item["metadata"]["generation"] += 1
            self._store(item)
        return _copy(item)

    def vanish(self, kind: str, name: str) -> None:
        self.stored.pop((kind, name), None)
        self._ours.pop((kind, name), None)

    def pods(self) -> list[Object]:
        return [o for (kind, _), o in self.stored.items() if kind == "Pod"]

    def children(self) -> list[Object]:
        """The objects with the operator's label, as the watches report them."""
        return [_copy(o) for (kind, _), o in self.stored.items() if kind != "DeliveryPipeline"]

    def complete(self, name: str, at: str) -> None:
        """The run of a Job ends successfully."""
        job = self.stored["Job", name]
        job["status"] = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": at}
        for pod in self.pods():
            if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]:
                pod["status"] |= {"phase": "Succeeded", "conditions": []}
        self._store(job)

    def lose_node(self, pod: str) -> None:
        """The pod's node does not answer any more, and Kubernetes deletes the pod."""
        item = self.stored["Pod", pod]
        item["metadata"]["deletionTimestamp"] = NOW
        item["status"]["conditions"].append(
            {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}
        )
        self.lost.add(item["metadata"]["uid"])

    def run(self) -> bool:
        """The controllers act once. Whether anything has changed."""
        before = json.dumps([*self.stored.values()])
        uids = {o["metadata"]["uid"] for o in self.stored.values()}
        for pod in self.pods():
            if pod["metadata"]["ownerReferences"][0]["uid"] not in uids:
                pod["metadata"].setdefault("deletionTimestamp", NOW)
        for key, item in list(self.stored.items()):
            meta = item["metadata"]
            held = key[0] in _OWNERS or FINALIZER in meta.get("finalizers", ()) or meta["uid"] in self.lost
            if meta.get("deletionTimestamp") and not held:
                self.vanish(*key)
        for item in [o for (kind, _), o in self.stored.items() if kind in _OWNERS]:
            self._control(item)
        for pod in self.pods():
            if pod["metadata"]["labels"].get(ROLE_LABEL) == CHECK_ROLE:
                if self.check_ending is not None and pod["status"]["phase"] == "Pending":
                    end_container(pod, self.check_ending)
            elif self.ready and pod["status"]["phase"] == "Running" and not pod["metadata"].get("deletionTimestamp"):
                pod["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
        return before != json.dumps([*self.stored.values()])

    # -- inside ------------------------------------------------------------------------------------------------

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
        item = _copy(self.stored[kind, name])
        if version not in (None, item["metadata"]["resourceVersion"]):
            raise ApiError(409, "the object has been modified")
        return item

    def _store(self, item: Object) -> None:
        number = next(self._numbers)
        item["metadata"].setdefault("uid", f"uid-{number}")
        item["metadata"]["resourceVersion"] = str(number)
        if item["kind"] == "StatefulSet":  # the one of whose generation anything is asked
            known = self.stored.get((item["kind"], item["metadata"]["name"]))
            same = known is not None and known["spec"] == item["spec"]
            item["metadata"]["generation"] = item["metadata"].get("generation", 0) + (not same)
        self.stored[item["kind"], item["metadata"]["name"]] = item

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
        if not endless and is_complete(owner) and not meta.get("deletionTimestamp"):
            return
        replicas = spec["replicas"] if endless else int(not spec["suspend"])
        desired = replicas and not meta.get("deletionTimestamp")
        names = {p["metadata"]["name"] for p in own}
        names_of_pods = [_pod_name(owner, number) for number in range(replicas if desired else 0)]
        for number, name in enumerate(names_of_pods):
            if name not in names and ("Pod", name) not in self.stored:
                self._store(_pod(owner, revision if endless else None, number))
        by_itself = spec.get("updateStrategy", {}).get("type") != "OnDelete"
        for pod in own:
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"]["conditions"])
            outdated = (
                by_itself and endless and ready and pod["metadata"]["labels"]["controller-revision-hash"] != revision
            )
            if outdated or pod["metadata"]["name"] not in names_of_pods:
                pod["metadata"].setdefault("deletionTimestamp", NOW)


def end_container(pod: Object, ending: Ending) -> None:
    """The pod of a check ends like this."""
    terminated = {"exitCode": ending.exit_code, "message": ending.to_json(), "finishedAt": NOW}
    pod["status"] |= {
        "phase": "Failed" if ending.exit_code else "Succeeded",
        "containerStatuses": [{"name": "driver", "state": {"terminated": terminated}}],
    }


def _copy(value: T) -> T:
    copy: T = json.loads(json.dumps(value))
    return copy


def _with_defaults(item: Object) -> Object:
    """Returns the item with the defaults that the API server adds."""
    pod = item.get("spec", {}).get("template", {}).get("spec", {})
    if pod:
        pod.setdefault("dnsPolicy", "ClusterFirst")
        for container in pod["containers"]:
            container.setdefault("terminationMessagePath", "/dev/termination-log")
    return item


def _merged(present: Any, desired: Any, before: Any, key: str | None = None) -> Any:
    """Server-side apply: fields that the operator no longer applies are removed, fields of others stay. before: the
    object that the operator applied last.
    """
    if isinstance(desired, dict) and isinstance(present, dict):
        before = before if isinstance(before, dict) else {}
        remaining = {k: v for k, v in present.items() if k in desired or k not in before}
        return remaining | {k: _merged(present.get(k), v, before.get(k), _KEYS.get(k)) for k, v in desired.items()}
    if key and isinstance(present, list):
        there, earlier = ({i[key]: i for i in items or ()} for items in (present, before))
        mine = [_merged(there.get(i[key]), i, earlier.get(i[key])) for i in desired]
        names = {i[key] for i in desired}
        return mine + [i for k, i in there.items() if k not in names and k not in earlier]
    return desired


def _fixed(item: Object) -> Any:
    """The part that cannot be changed."""
    if item["kind"] == "ConfigMap" and not item.get("immutable"):
        return None
    value: Any = item
    for name in _FIXED.get(item["kind"], ("apiVersion",)):
        value = value[name]
    return value


def _pod_name(owner: Object, number: int) -> str:
    return f"{owner['metadata']['name']}-{number if owner['kind'] == 'StatefulSet' else 'x7k2p'}"


def _pod(owner: Object, revision: str | None, number: int) -> Object:
    template, meta = _copy(owner["spec"]["template"]), owner["metadata"]
    labels = template["metadata"]["labels"] | ({"controller-revision-hash": revision} if revision else {})
    reference = {k: owner[k] for k in ("apiVersion", "kind")}
    reference |= {"name": meta["name"], "uid": meta["uid"], "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _pod_name(owner, number),
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [reference],
        },
        "spec": template["spec"] | {"nodeName": "node-1"},
        "status": {"phase": "Running", "podIP": f"192.0.2.{7 + number}", "conditions": []},
    }
