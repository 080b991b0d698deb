"""What an API server without controllers lacks: pods for StatefulSets and Jobs, the end of what is deleted, and an answer to /progress.

Nothing happens by itself: `act` looks at a namespace and acts once, so that a test decides when. For more pipelines than it is worth to
list each time there is `follow`, which only makes the first pod of each driver.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ackwright.clients.kubernetes import GROUP, VERSION, ApiError, Kubernetes
from ackwright.controller import CHILDREN, OURS
from ackwright.render.names import PIPELINE_LABEL, ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT
from ackwright_stream.reports import ProgressReport, State

Object = dict[str, Any]

PIPELINE = f"{GROUP}/{VERSION}", "DeliveryPipeline"
_FOREGROUND = "foregroundDeletion"
_OWNERS = ("StatefulSet", "Job")
_NODE = "node-1"
IDLE: dict[str, Any] = ProgressReport(
    pipeline="faults/p",
    guarantee="exactly-once",
    state=State.RUNNING,
    driver=1,
    batch_id=7,
    batch_seconds=0.0,
    last_batch_at=None,
    positions={"in": {"0": 5}},
    lag=0,
    records=0,
    batches=7,
    restarts=0,
    abandoned_records=0,
    expired_records=0,
    malformed_records=0,
    skipped_lanes=0,
    records_per_second=0.0,
).as_json()


class Pods:
    """The controllers of one namespace. address: where every pod's progress is answered. made: how many pods there have been of each
    pipeline; at_once: the most drivers that a pipeline had at a time."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, address: str) -> None:
        self._kubernetes, self._namespace, self._address = kubernetes, namespace, address
        self.made: Counter[str] = Counter()
        self.at_once: Counter[str] = Counter()

    def children(self) -> list[Object]:
        """What carries the operator's label, as its watches bring it."""
        return [o for version, kind in CHILDREN for o in self._kubernetes.objects(version, kind, self._namespace, OURS)]

    def pipelines(self) -> list[Object]:
        return self._kubernetes.objects(*PIPELINE, self._namespace)

    def act(self) -> set[str]:
        """Every controller acts once. Returns the pipelines of which something was changed."""
        found = self.children()
        living = {o["metadata"]["uid"] for o in (*found, *self.pipelines())}
        pods = [o for o in found if o["kind"] == "Pod"]
        for pipeline, drivers in Counter(
            _pipeline(p) for p in pods if p["metadata"]["labels"].get(ROLE_LABEL) == "driver"
        ).items():
            self.at_once[pipeline] = max(drivers, self.at_once[pipeline])
        changed = set()
        for child in found:
            own = [p for p in pods if _owned_by(p, child)]
            if self._collect(child, own, living) or (child["kind"] in _OWNERS and self.control(child, own)):
                changed.add(_pipeline(child))
        return changed

    def control(self, owner: Mapping[str, Any], own: list[Object]) -> bool:
        """Brings the pods of a StatefulSet or Job to what it asks for. own: its pods. Whether something was changed."""
        meta, spec, endless = owner["metadata"], owner["spec"], owner["kind"] == "StatefulSet"
        if meta.get("deletionTimestamp"):
            return False
        revision = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        told = {
            "replicas": 1,
            "observedGeneration": meta["generation"],
            "updateRevision": revision,
            "currentRevision": revision,
        }
        untold = endless and any(owner.get("status", {}).get(name) != value for name, value in told.items())
        if untold:
            self._kubernetes.put_status({**owner, "status": told})
        wanted = spec["replicas"] == 1 if endless else not spec.get("suspend")
        if wanted and not own:
            self._make(owner, revision if endless else None)
            return True
        unwanted = [
            p
            for p in own
            if not wanted or (endless and p["metadata"]["labels"].get("controller-revision-hash") != revision)
        ]
        for pod in unwanted:
            self._delete(pod)
        return bool(unwanted) or untold

    def _make(self, owner: Mapping[str, Any], revision: str | None) -> None:
        meta, template = owner["metadata"], owner["spec"]["template"]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{meta['name']}-{'0' if revision else 'x7k2p'}",
                "namespace": meta["namespace"],
                "labels": template["metadata"]["labels"] | ({"controller-revision-hash": revision} if revision else {}),
                "annotations": template["metadata"].get("annotations", {}),
                "ownerReferences": [reference],
            },
            "spec": template["spec"] | {"nodeName": _NODE},
        }
        made = self._kubernetes.create(pod)
        self.made[_pipeline(made)] += 1
        running = {
            "phase": "Running",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._kubernetes.put_status({**made, "apiVersion": "v1", "kind": "Pod", "status": running})

    def _collect(self, child: Object, own: list[Object], living: set[str]) -> bool:
        """The kubelet for pods that were told to end, and the garbage collector. Whether something was changed."""
        meta = child["metadata"]
        if meta.get("deletionTimestamp"):
            if child["kind"] == "Pod":
                self._delete(child, grace_seconds=0)
            elif own:
                for pod in own:
                    self._delete(pod)
            else:
                left = [f for f in meta.get("finalizers", ()) if f != _FOREGROUND]
                self._kubernetes.merge(
                    child["apiVersion"],
                    child["kind"],
                    meta["namespace"],
                    meta["name"],
                    {"metadata": {"finalizers": left}},
                )
            return True
        if not any(o["uid"] in living for o in meta.get("ownerReferences", ())):
            self._delete(child)
            return True
        return False

    def _delete(self, found: Mapping[str, Any], grace_seconds: int | None = None) -> None:
        meta = found["metadata"]
        if grace_seconds is None and meta.get("deletionTimestamp"):
            return
        self._kubernetes.delete(
            found["apiVersion"],
            found["kind"],
            meta["namespace"],
            meta["name"],
            uid=meta["uid"],
            grace_seconds=grace_seconds,
        )


def follow(pods: Pods, events: Iterator[Mapping[str, Any]]) -> None:
    """Makes the pod of each StatefulSet that the events of a watch bring, until they end. One that exists already is left alone."""
    for event in events:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", **event["object"]}
        if event["type"] == "ADDED" and "status" in owner and not owner["status"].get("updateRevision"):
            try:
                pods.control(owner, [])
            except ApiError as e:
                if e.status not in (404, 409):  # it has changed, or gone, since it was told of
                    raise


@contextmanager
def progress(told: Mapping[str, Any] = IDLE) -> Iterator[str]:
    """Answers /progress for every pod; yields the address that the pods are to have."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    address = _free_address()
    server = ThreadingHTTPServer((address, PROGRESS_PORT), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()


def _free_address() -> str:
    """One of loopback's, for the port is given and somebody else may use it as well."""
    for last in range(1, 255):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((f"127.0.77.{last}", PROGRESS_PORT))
            except OSError:
                continue
            return f"127.0.77.{last}"
    raise AssertionError(f"port {PROGRESS_PORT} is taken everywhere")


def _owned_by(pod: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    return any(o["uid"] == owner["metadata"]["uid"] for o in pod["metadata"].get("ownerReferences", ()))


def _pipeline(found: Mapping[str, Any]) -> str:
    name: str = found["metadata"]["labels"][PIPELINE_LABEL]
    return name
