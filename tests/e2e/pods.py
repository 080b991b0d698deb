"""Fake controllers for an API server without any: pods of StatefulSets and Jobs, garbage collection, and /progress.

Nothing runs in the background: `act` reconciles a namespace once, so that a test decides when. `follow` is for many
pipelines, whose objects are too many to list each time; it only creates the first pod of each driver.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ackwright.clients.kubernetes import GROUP, VERSION, ApiError, Kubernetes
from ackwright.controller import CHILDREN, OURS
from ackwright.observe.progress import ProgressReader
from ackwright.observe.workload import drivers, progress_addresses
from ackwright.render.check import CHECK_ROLE
from ackwright.render.names import PIPELINE_LABEL, ROLE_LABEL
from ackwright.render.workload import PROGRESS_PORT
from ackwright_stream.reports import Ending, ProgressReport
from minimal_job import minimal_report

Object = dict[str, Any]

PIPELINE = f"{GROUP}/{VERSION}", "DeliveryPipeline"
_FOREGROUND = "foregroundDeletion"
_OWNERS = ("StatefulSet", "Job")
_NODE = "node-1"
IDLE = minimal_report(pipeline="faults/p", batch_id=7, batches=7, positions={"in": {"0": 5}}).as_json()


def read_reports(objects: Sequence[Object]) -> dict[str, ProgressReport]:
    """What the drivers among a pipeline's objects report, by address."""

    async def read() -> dict[str, ProgressReport]:
        reader = ProgressReader()
        try:
            addresses = progress_addresses(drivers(objects))
            return {a: report for a in addresses if (report := await reader.read(a)) is not None}
        finally:
            await reader.close()

    return asyncio.run(read())


class Pods:
    """The controllers of one namespace. address: the IP address of all pods, at which `progress` answers."""

    def __init__(self, kubernetes: Kubernetes, namespace: str, address: str) -> None:
        self._kubernetes, self._namespace, self._address = kubernetes, namespace, address
        self.created: Counter[str] = Counter()  # number of pods created, by pipeline
        self.check_ending = Ending(0)  # of every pod that checks an edit
        self.concurrent_drivers: Counter[str] = Counter()  # highest number of drivers at the same time, by pipeline

    def children(self) -> list[Object]:
        """The objects with the operator's label, of all kinds that the operator watches."""
        return [o for version, kind in CHILDREN for o in self._kubernetes.objects(version, kind, self._namespace, OURS)]

    def pipelines(self) -> list[Object]:
        return self._kubernetes.objects(*PIPELINE, self._namespace)

    def act(self) -> set[str]:
        """Runs every controller once. Returns the pipelines with changed objects."""
        children = self.children()
        existing = {o["metadata"]["uid"] for o in (*children, *self.pipelines())}
        pods = [o for o in children if o["kind"] == "Pod"]
        for pipeline, number in Counter(
            _pipeline(p) for p in pods if p["metadata"]["labels"].get(ROLE_LABEL) == "driver"
        ).items():
            self.concurrent_drivers[pipeline] = max(number, self.concurrent_drivers[pipeline])
        changed = set()
        for child in children:
            own = [p for p in pods if _owned_by(p, child)]
            if _is_check(child) and self._end_check(child):
                changed.add(_pipeline(child))
            if self._collect(child, own, existing) or (child["kind"] in _OWNERS and self.control(child, own)):
                changed.add(_pipeline(child))
        return changed

    def control(self, owner: Mapping[str, Any], own: list[Object]) -> bool:
        """Reconciles the pods of a StatefulSet or Job; returns whether it changed anything. own: the owner's pods."""
        meta, spec, is_stateful_set = owner["metadata"], owner["spec"], owner["kind"] == "StatefulSet"
        if meta.get("deletionTimestamp"):
            return False
        revision = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        status = {
            "replicas": 1,
            "observedGeneration": meta["generation"],
            "updateRevision": revision,
            "currentRevision": revision,
        }
        current = owner.get("status", {})
        status_differs = is_stateful_set and any(current.get(name) != value for name, value in status.items())
        if status_differs:
            self._kubernetes.put_status({**owner, "status": status})
        needs_pod = spec["replicas"] == 1 if is_stateful_set else not spec.get("suspend")
        if needs_pod and not own:
            self._create_pod(owner, revision if is_stateful_set else None)
            return True
        surplus = [
            p
            for p in own
            if not needs_pod
            or (is_stateful_set and p["metadata"]["labels"].get("controller-revision-hash") != revision)
        ]
        for pod in surplus:
            self._delete(pod)
        return bool(surplus) or status_differs

    def _create_pod(self, owner: Mapping[str, Any], revision: str | None) -> None:
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
        created = self._kubernetes.create(pod)
        self.created[_pipeline(created)] += 1
        running = {
            "phase": "Running",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._kubernetes.put_status({**created, "apiVersion": "v1", "kind": "Pod", "status": running})

    def _end_check(self, pod: Object) -> bool:
        """Ends the pod of an edit's check as its kubelet would; returns whether it changed anything."""
        if pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return False
        terminated = {"exitCode": self.check_ending.exit_code, "message": self.check_ending.to_json()}
        container = {"name": "driver", "image": "", "imageID": "", "ready": False, "restartCount": 0}
        status = {
            "phase": "Failed" if self.check_ending.exit_code else "Succeeded",
            "containerStatuses": [{**container, "state": {"terminated": terminated}}],
        }
        self._kubernetes.put_status({**pod, "apiVersion": "v1", "kind": "Pod", "status": status})
        return True

    def _collect(self, child: Object, own: list[Object], existing: set[str]) -> bool:
        """Acts as kubelet for deleted pods and as garbage collector; returns whether it changed anything."""
        meta = child["metadata"]
        if meta.get("deletionTimestamp"):
            if child["kind"] == "Pod":
                self._delete(child, grace_seconds=0)
            elif own:
                for pod in own:
                    self._delete(pod)
            else:
                finalizers = [f for f in meta.get("finalizers", ()) if f != _FOREGROUND]
                self._kubernetes.merge(
                    child["apiVersion"],
                    child["kind"],
                    meta["namespace"],
                    meta["name"],
                    {"metadata": {"finalizers": finalizers}},
                )
            return True
        if not any(o["uid"] in existing for o in meta.get("ownerReferences", ())):
            self._delete(child)
            return True
        return False

    def _delete(self, child: Mapping[str, Any], grace_seconds: int | None = None) -> None:
        meta = child["metadata"]
        if grace_seconds is None and meta.get("deletionTimestamp"):
            return
        self._kubernetes.delete(
            child["apiVersion"],
            child["kind"],
            meta["namespace"],
            meta["name"],
            uid=meta["uid"],
            grace_seconds=grace_seconds,
        )


def follow(pods: Pods, events: Iterator[Mapping[str, Any]]) -> None:
    """Creates the pod of each new StatefulSet in the events of a watch, until they end."""
    for event in events:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", **event["object"]}
        if event["type"] == "ADDED" and "status" in owner and not owner["status"].get("updateRevision"):
            try:
                pods.control(owner, [])
            except ApiError as e:
                if e.status not in (404, 409):  # the StatefulSet was changed or deleted after the event
                    raise


@contextmanager
def progress(report: Mapping[str, Any] = IDLE) -> Iterator[str]:
    """Answers /progress for all pods with the report; yields the address for the pods."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(report).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            with suppress(ConnectionError):  # the operator has not waited for the answer
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            return

    address = free_address()
    server = ThreadingHTTPServer((address, PROGRESS_PORT), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="progress", daemon=True).start()
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def silent_address(backlog: int) -> Iterator[str]:
    """An address for pods whose connections the kernel accepts, and which never answer /progress."""
    address = free_address()
    with socket.create_server((address, PROGRESS_PORT), backlog=backlog):
        yield address


def free_address() -> str:
    """A loopback address at which the fixed port is free; another program may use it at other addresses."""
    for last in range(1, 255):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((f"127.0.77.{last}", PROGRESS_PORT))
            except OSError:
                continue
            return f"127.0.77.{last}"
    raise AssertionError(f"port {PROGRESS_PORT} is in use at all addresses")


def _owned_by(pod: Mapping[str, Any], owner: Mapping[str, Any]) -> bool:
    return any(o["uid"] == owner["metadata"]["uid"] for o in pod["metadata"].get("ownerReferences", ()))


def _is_check(child: Mapping[str, Any]) -> bool:
    return bool(child["kind"] == "Pod" and child["metadata"]["labels"].get(ROLE_LABEL) == CHECK_ROLE)


def _pipeline(child: Mapping[str, Any]) -> str:
    name: str = child["metadata"]["labels"][PIPELINE_LABEL]
    return name
