"""The operator's working parts: caches of what the watches bring, the worklist, the workers. What is to be done is decided in reconcile."""

from __future__ import annotations

import asyncio
import copy
import logging
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from ackwright.api.spec import API_VERSION, KIND
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.metrics import Metrics, serve
from ackwright.neighbours import Neighbours
from ackwright.reconcile import Reconciler
from ackwright.render.names import MANAGED_BY, PIPELINE_LABEL, ROLE_LABEL
from ackwright.sentinel import EVERY_S, Sentinel
from ackwright.settings import OperatorSettings
from ackwright.worklist import Key, Worklist

log = logging.getLogger("ackwright")

OURS = {"app.kubernetes.io/managed-by": MANAGED_BY}
CHILDREN = (
    ("v1", "pods", "Pod"),
    ("v1", "configmaps", "ConfigMap"),
    ("v1", "serviceaccounts", "ServiceAccount"),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("apps/v1", "statefulsets", "StatefulSet"),
    ("batch/v1", "jobs", "Job"),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "roles", "Role"),
    ("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding"),
)
_RELIST_EVERY_S = 120.0


class Controller:
    """pipelines: resources by namespace and name; children: what carries their label, by kind and name."""

    def __init__(self, kubernetes: Kubernetes, settings: OperatorSettings) -> None:
        self._settings = settings
        self.pipelines: dict[Key, dict[str, Any]] = {}
        self.children: dict[Key, dict[tuple[str, str], dict[str, Any]]] = {}
        self.sentinel = Sentinel(kubernetes, settings.namespaces[0] if settings.namespaces else settings.own_namespace)
        self.worklist = Worklist()
        self._kubernetes = kubernetes
        self._threads = ThreadPoolExecutor(settings.workers, thread_name_prefix="reconcile")
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics = Metrics(lambda: dict(self.pipelines), lambda: len(self.worklist))
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-")
        self._neighbours = Neighbours()
        connections = Connections(kubernetes, Path(self._directory.name))
        self._reconciler = Reconciler(kubernetes, connections, settings, neighbours=self._neighbours)

    async def start(self) -> None:
        """Begins to work; what is due comes from the watches."""
        serve(self._metrics, self._settings.metrics_port, healthy=self.sentinel.healthy, ready=lambda: bool(self._tasks))
        self._tasks = [asyncio.create_task(self.worklist.work(self._look)) for _ in range(self._settings.workers)]
        self._tasks += [asyncio.create_task(self._beat()), asyncio.create_task(self._relist())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=True)  # a look that has begun is ended: it takes as long as its calls may take
        self._directory.cleanup()

    def saw_pipeline(self, kind: str | None, body: Mapping[str, Any]) -> None:
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if kind == "DELETED":
            self.pipelines.pop(key, None)
            self.worklist.forget(key)
            self._reconciler.forget(body["metadata"]["uid"])
            for other in self._neighbours.left(key):
                self.worklist.add(other)
        else:
            self.pipelines[key] = _compact(body)
            self._neighbours.saw(key, self.pipelines[key])
            if not self._reconciler.wrote(body):
                self.worklist.add(key)

    def saw_child(self, event: str | None, kind: str, api_version: str, body: Mapping[str, Any]) -> None:
        meta = body["metadata"]
        key = meta["namespace"], meta["labels"].get(PIPELINE_LABEL, "")
        children = self.children.setdefault(key, {})
        if event == "DELETED":
            children.pop((kind, meta["name"]), None)
            if not children:
                self.children.pop(key, None)
        else:
            children[kind, meta["name"]] = {"apiVersion": api_version, "kind": kind, **_compact(body)}
        if key in self.pipelines and (kind != "Pod" or _matters(event, body)):
            self.worklist.add(key, 0.05)  # what changes together is looked at once

    async def _look(self, key: Key) -> float | None:
        resource = self.pipelines.get(key)
        if resource is None:
            return None
        objects = list(self.children.get(key, {}).values())
        try:
            with self._metrics.duration.time():
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._reconciler.reconcile, resource, objects)
        except ApiError as e:
            self._metrics.errors.labels(e.reason.value).inc()
            if e.status == 409:  # it was changed under our hands; the change is on its way to us
                return 0.5
            log.warning("%s/%s: %s", *key, e.message)
            if e.retry_after:
                return e.retry_after
            raise
        except Exception:
            self._metrics.errors.labels("Unexpected").inc()
            log.exception("%s/%s", *key)
            raise

    async def _relist(self) -> None:
        """Forgets what is gone without a word: what is deleted while a watch is between two connections is never told."""
        while True:
            await asyncio.sleep(_RELIST_EVERY_S)
            for resource in await self._gone(API_VERSION, KIND, lambda: list(self.pipelines.values())):
                self.saw_pipeline("DELETED", resource)
            for api_version, _, kind in CHILDREN:
                for child in await self._gone(api_version, kind, partial(self._children_of, kind)):
                    self.saw_child("DELETED", kind, api_version, child)

    def _children_of(self, kind: str) -> list[dict[str, Any]]:
        return [c for children in self.children.values() for (k, _), c in children.items() if k == kind]

    async def _gone(self, api_version: str, kind: str, known: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """What was known before the API server was asked, is known still, and is not there."""
        before = {o["metadata"]["uid"] for o in known()}
        try:
            present = await asyncio.get_running_loop().run_in_executor(self._threads, self._uids, api_version, kind)
        except ApiError as e:
            log.warning("listing %s: %s", kind, e.message)
            return []
        return [o for o in known() if o["metadata"]["uid"] in before - present]

    def _uids(self, api_version: str, kind: str) -> set[str]:
        namespaces: tuple[str | None, ...] = self._settings.namespaces or (None,)
        labels = None if kind == KIND else OURS
        return {o["metadata"]["uid"] for n in namespaces for o in self._kubernetes.objects(api_version, kind, n, labels)}

    async def _beat(self) -> None:
        while True:
            await asyncio.get_running_loop().run_in_executor(self._threads, self.sentinel.beat)
            await asyncio.sleep(EVERY_S)


def _matters(event: str | None, pod: Mapping[str, Any]) -> bool:
    """Of executors only their end does."""
    if pod["metadata"]["labels"].get(ROLE_LABEL) == "driver":
        return True
    return event != "DELETED" and pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _compact(body: Mapping[str, Any]) -> dict[str, Any]:
    """An own copy without what nobody reads and takes most of the memory."""
    meta = {k: copy.deepcopy(v) for k, v in body["metadata"].items() if k != "managedFields"}
    return {**{k: copy.deepcopy(v) for k, v in body.items() if k != "metadata"}, "metadata": meta}
