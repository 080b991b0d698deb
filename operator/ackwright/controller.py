"""The operator's moving parts: caches of what the watches report, the worklist, the workers.

What to do is decided in reconcile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from ackwright.api.spec import API_VERSION, KIND
from ackwright.clients.attempts import ConnectionBusy
from ackwright.clients.connections import Connections
from ackwright.clients.fence import Fence, Fenced, unfenced
from ackwright.clients.kafka_processes import KafkaProcesses
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.lost_namespaces import Change, LostNamespaces
from ackwright.metrics import Metrics, serve
from ackwright.observe.progress import ProgressReader
from ackwright.observe.workload import drivers, progress_addresses
from ackwright.pipeline_index import PipelineIndex
from ackwright.planning.policy import policy
from ackwright.probes import Probes
from ackwright.reconcile import Reconciler
from ackwright.render.names import MANAGED_BY, PIPELINE_LABEL, ROLE_LABEL
from ackwright.sentinel import Sentinel
from ackwright.settings import OperatorSettings
from ackwright.watches import Watches
from ackwright.worklist import Key, Postponed, Worklist
from ackwright_stream.reasons import Reason

log = logging.getLogger("ackwright")

Object = dict[str, Any]

OURS = {"app.kubernetes.io/managed-by": MANAGED_BY}
CHILDREN = (
    ("v1", "Pod"),
    ("v1", "ConfigMap"),
    ("v1", "ServiceAccount"),
    ("v1", "PersistentVolumeClaim"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
)
_AFTER_CONFLICT_S, _LONGEST_CONFLICT_S = 0.5, 30.0
_AFTER_BUSY_S, _LONGEST_BUSY_S = 1.0, 16.0  # until a connection is tried again for which other workers wait
_AFTER_FENCED_S = 1.0
_GATHER_S = 0.05  # objects that change together are reconciled together
_STANDSTILL_S = 300.0  # without any worker becoming free for this long, the operator is unhealthy


class Controller:
    """Passes events to the worklist, and due pipelines to the reconciler."""

    def __init__(self, kubernetes: Kubernetes, settings: OperatorSettings, fence: Fence | None = None) -> None:
        """fence: of all writes, closed until lead(True); None: this is the only operator, and it leads at once."""
        self._settings = settings
        self.leads = fence is None
        writing = fence.write if fence else unfenced
        kubernetes = kubernetes.fenced(writing) if fence else kubernetes
        # Nothing changes the objects in these caches.
        self.pipelines: dict[Key, dict[str, Any]] = {}
        self._others: dict[Key, dict[str, Any]] = {}  # pipelines of other shards, as far as the index uses them
        self.children: dict[Key, dict[tuple[str, str], dict[str, Any]]] = {}  # by pipeline, then by kind and name
        self._pipeline_of: dict[str, Key] = {}  # by uid of a child
        own_namespaces = [n for n in settings.namespaces if settings.shard.owns(n)]
        self.lost = LostNamespaces(own_namespaces)
        self._unlisted: set[str] = set()  # namespaces whose pipelines cannot be listed, of all shards
        self.sentinel = Sentinel(settings.shard.lease)
        self.worklist = Worklist(workers=settings.workers)
        if not self.leads:
            self.worklist.pause()
        self._kubernetes = kubernetes
        self._watches = Watches(
            kubernetes,
            [
                # Those of other shards, too: they may declare the same topic, or the same consumer group.
                *((API_VERSION, KIND, namespace) for namespace in settings.namespaces or (None,)),
                *((*kind, n) for n in (own_namespaces if settings.namespaces else (None,)) for kind in CHILDREN),
            ],
            OURS,
            on_list=self.replace,
            on_change=self.update,
            on_lost=self.update_lost,
            without_labels={KIND},
        )
        self._reader = ProgressReader()
        self._probes = Probes(self._reader.read, self.worklist.resume)
        self._threads = ThreadPoolExecutor(settings.workers, thread_name_prefix="reconcile")
        # Separate, so that Events about namespaces do not wait for reconciles.
        self._own_threads = ThreadPoolExecutor(1, thread_name_prefix="controller")
        self._busy_in_a_row: dict[Key, int] = {}  # how often other workers waited for a pipeline's cluster
        self._conflicts_in_a_row: dict[Key, int] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._metrics = Metrics(
            self._watched_pipelines,
            self.worklist,
            self.lost.by_namespace,
            leads=lambda: self.leads,
            shards=settings.shard.of,
        )
        self._directory = tempfile.TemporaryDirectory(prefix="ackwright-")
        self._index = PipelineIndex(policy(settings))
        self._kafka_processes = KafkaProcesses(on_end=self._metrics.kafka_process_ends.inc)
        connections = Connections(
            kubernetes,
            Path(self._directory.name),
            workers=settings.workers,
            policy=policy(settings),
            writing=writing,
            processes=self._kafka_processes,
        )
        self._reconciler = Reconciler(
            kubernetes,
            connections,
            settings,
            index=self._index,
            pipelines_listed=self._pipelines_listed,
        )

    async def start(self) -> None:
        """Starts the workers, once everything has been listed that a reconcile depends on.

        An object that has not been listed yet must not count as missing, nor a pipeline that shares a group or a topic
        as the only one.
        """
        serve(self._metrics, self._settings.metrics_port, healthy=self.healthy, ready=lambda: bool(self._tasks))
        await self._watches.start()
        self._tasks = [asyncio.create_task(self.worklist.work(self._reconcile)) for _ in range(self._settings.workers)]

    def lead(self, leads: bool) -> None:
        """Takes whether this operator leads. One that begins to lead reconciles every pipeline.

        Reconciles under way when it ceases to lead come to their end without a further write.
        """
        if leads is self.leads:
            return
        self.leads = leads
        if not leads:
            self.worklist.pause()
            return
        self._reconciler.forget_all()
        for key in self.pipelines:
            self.worklist.add(key)
        self.worklist.unpause()

    async def stop(self) -> None:
        """Stops the workers. Reconciles under way are completed: they take as long as their calls may take."""
        await self._watches.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._probes.stop()
        await self._reader.close()
        for pool in (self._threads, self._own_threads):
            pool.shutdown(wait=True)
        self._kafka_processes.close()
        self._directory.cleanup()

    def healthy(self) -> bool:
        """Whether the watches report events, and workers become free."""
        standstill = max(self.worklist.standstill(), self._watches.standstill())
        return self.sentinel.healthy() and standstill < _STANDSTILL_S

    def replace(self, kind: str, namespace: str | None, objects: list[Object]) -> None:
        """Takes a list of all objects of a kind, in one namespace or in all."""
        if kind == KIND:
            self.replace_pipelines(namespace, objects)
        else:
            self.replace_children(kind, namespace, objects)

    def update(self, event: str, changed: Object) -> None:
        """Takes an event of an object: ADDED, MODIFIED, DELETED."""
        self._take(self.update_pipeline if changed["kind"] == KIND else self.update_child, event, changed)

    def _take(self, update: Callable[[str | None, Object], None], event: str | None, changed: Object) -> None:
        """Takes an event. An object that raises an error is skipped: it must not end the watch of all others."""
        try:
            update(event, changed)
        except Exception:
            self._metrics.errors.labels(Reason.UNEXPECTED.value).inc()
            meta = changed["metadata"]
            log.exception("%s %s/%s is skipped", changed["kind"], meta["namespace"], meta["name"])

    def update_lost(self, namespace: str, kind: str, why: str | None) -> None:
        """Takes that the objects of a kind in a namespace cannot be listed, and why; None: they can.

        In a lost namespace deletions are completed and nothing else is done, because an object that cannot be listed
        must not count as missing.
        """
        if kind == KIND:
            (self._unlisted.discard if why is None else self._unlisted.add)(namespace)
        if not self._settings.shard.owns(namespace):
            return
        change = self.lost.update(namespace, kind, why)
        if change is not None:
            log.warning("%s", change.message)
            self._own_threads.submit(self._write_event, change)
        if change is not None or (kind == KIND and namespace in self.lost):
            for key, resource in self.pipelines.items():
                if key[0] == namespace and self._is_reconciled(resource):
                    self.worklist.add(key)

    def _is_reconciled(self, resource: Object) -> bool:
        """Whether anything is done about a pipeline: in a lost namespace only about a deleted one that is listed."""
        meta = resource["metadata"]
        if meta["namespace"] not in self.lost:
            return True
        return "deletionTimestamp" in meta and self.lost.lists(meta["namespace"], KIND)

    def _pipelines_listed(self) -> bool:
        """Whether the pipelines of all watched namespaces are known, also of those of other shards."""
        return not self._unlisted

    def _write_event(self, change: Change) -> None:
        with contextlib.suppress(ApiError, Fenced):  # the log has it, too; only the leader writes it
            self._kubernetes.create(change.event(self._settings.own_namespace, datetime.now(UTC)))

    def _watched_pipelines(self) -> dict[Key, Mapping[str, Any]]:
        if not self.leads:  # the leader exports them
            return {}
        return {key: o for key, o in tuple(self.pipelines.items()) if key[0] not in self.lost}

    def replace_pipelines(self, namespace: str | None, objects: list[Object]) -> None:
        """Takes a list of all pipelines, in one namespace or in all. Those that are no longer listed are deleted."""
        present = {o["metadata"]["uid"] for o in objects}
        for (place, _), known in (*self.pipelines.items(), *self._others.items()):
            if namespace in (None, place) and known["metadata"]["uid"] not in present:
                self._take(self.update_pipeline, "DELETED", known)
        for resource in objects:
            self._take(self.update_pipeline, None, resource)

    def update_pipeline(self, event: str | None, resource: Object) -> None:
        """Takes an event of a pipeline: ADDED, MODIFIED, DELETED; None: it was listed."""
        key = resource["metadata"]["namespace"], resource["metadata"]["name"]
        if not self._settings.shard.owns(key[0]):
            self._update_other(event, key, resource)
        elif event == "DELETED":
            self.pipelines.pop(key, None)
            self.worklist.forget(key)
            self._probes.forget(key)
            self._busy_in_a_row.pop(key, None)
            self._conflicts_in_a_row.pop(key, None)
            self._reconciler.forget(resource["metadata"]["uid"])
            self._remove_from_index(key)
        elif _is_news(resource, self.pipelines.get(key)):
            self.pipelines[key] = resource
            self._index.update(key, self.pipelines[key])
            if not self._reconciler.wrote(resource):
                self.worklist.add(key)

    def _update_other(self, event: str | None, key: Key, resource: Object) -> None:
        """Takes an event of a pipeline of another shard. Of its status only the accepted spec matters here."""
        if event == "DELETED":
            self._others.pop(key, None)
            self._remove_from_index(key)
        elif _declaration_changed(resource, self._others.get(key)):
            accepted = {"accepted": _accepted(resource)}
            self._others[key] = {k: accepted if k == "status" else v for k, v in resource.items()}
            self._index.update(key, self._others[key])

    def _remove_from_index(self, key: Key) -> None:
        for other in self._index.remove(key):
            if other in self.pipelines:
                self.worklist.add(other)

    def replace_children(self, kind: str, namespace: str | None, objects: list[Object]) -> None:
        """Takes a list of all children of a kind, in one namespace or in all.

        A deletion between two connections of a watch has no event, so what is no longer listed is deleted.
        """
        present = {o["metadata"]["uid"] for o in objects}
        known = [o for children in self.children.values() for (k, _), o in children.items() if k == kind]
        for child in known:
            if namespace in (None, child["metadata"]["namespace"]) and child["metadata"]["uid"] not in present:
                self._take(self.update_child, "DELETED", child)
        for child in objects:
            self._take(self.update_child, "ADDED", child)

    def update_child(self, event: str | None, child: Object) -> None:
        """Takes an event of a child: ADDED, MODIFIED, DELETED."""
        meta = child["metadata"]
        if not self._settings.shard.owns(meta["namespace"]):  # a watch of all namespaces reports it
            return
        key = meta["namespace"], meta["labels"].get(PIPELINE_LABEL, "")
        before = self._pipeline_of.get(meta["uid"], key)
        if before != key:  # somebody has changed the label: the pipeline no longer has it, and restores it
            self._update_child_of(before, "DELETED", child)
        self._update_child_of(key, event, child)

    def _update_child_of(self, key: Key, event: str | None, child: Object) -> None:
        meta, kind = child["metadata"], child["kind"]
        children = self.children.setdefault(key, {})
        known = children.get((kind, meta["name"]))
        if event == "DELETED":
            children.pop((kind, meta["name"]), None)
            self._pipeline_of.pop(meta["uid"], None)
        elif _is_news(child, known):
            children[kind, meta["name"]] = child
            self._pipeline_of[meta["uid"]] = key
        else:
            return
        if not children:
            self.children.pop(key, None)
        if key in self.pipelines and (kind != "Pod" or _matters(event, child)):
            self.worklist.add(key, _GATHER_S)

    async def _reconcile(self, key: Key) -> float | None:
        resource = self.pipelines.get(key)
        if resource is None or not self._is_reconciled(resource):
            return None
        if key[0] in self.lost:
            work = partial(self._reconciler.finish_in_lost_namespace, resource)
        else:
            objects = list(self.children.get(key, {}).values())
            pods = drivers(objects)
            processes = frozenset((pod.uid, pod.restarts) for pod in pods)
            reports = self._probes.take(key, progress_addresses(pods), processes)
            if reports is None:
                raise Postponed
            work = partial(self._reconciler.reconcile, resource, objects, reports)
        try:
            with self._metrics.duration.time():
                delay = await asyncio.get_running_loop().run_in_executor(self._threads, work)
            self._busy_in_a_row.pop(key, None)
            self._conflicts_in_a_row.pop(key, None)
            return delay
        except ConnectionBusy as e:
            raise Postponed(_growing(self._busy_in_a_row, key, _AFTER_BUSY_S, _LONGEST_BUSY_S)) from e
        except Fenced as e:
            raise Postponed(_AFTER_FENCED_S) from e
        except ApiError as e:
            if e.status == 409:  # no error: something changed the object meanwhile, and the event of that is on its way
                self._metrics.conflicts.inc()
                return _growing(self._conflicts_in_a_row, key, _AFTER_CONFLICT_S, _LONGEST_CONFLICT_S)
            self._metrics.errors.labels(e.reason.value).inc()
            log.warning("%s/%s: %s", *key, e.message)
            if e.retry_after:
                return e.retry_after
            raise
        except Exception:
            self._metrics.errors.labels(Reason.UNEXPECTED.value).inc()
            log.exception("%s/%s", *key)
            raise


def _growing(in_a_row: dict[Key, int], key: Key, first: float, longest: float) -> float:
    """Seconds, which grow, since each reconcile of a pipeline takes time before it learns that it has to wait."""
    times = in_a_row[key] = in_a_row.get(key, 0) + 1
    return min(longest, first * 2.0 ** min(times - 1, 10)) * random.uniform(0.5, 1.0)  # noqa: S311 (jitter)


def _matters(event: str | None, pod: Mapping[str, Any]) -> bool:
    """Whether the event of a pod calls for a reconcile. Of executors only the end does."""
    if pod["metadata"]["labels"].get(ROLE_LABEL) == "driver":
        return True
    return event != "DELETED" and pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_news(current: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    return known is None or any(current["metadata"][k] != known["metadata"][k] for k in ("uid", "resourceVersion"))


def _declaration_changed(current: Mapping[str, Any], known: Mapping[str, Any] | None) -> bool:
    fields = ("uid", "generation", "deletionTimestamp")
    if known is None or any(current["metadata"].get(k) != known["metadata"].get(k) for k in fields):
        return True
    return bool(_accepted(current) != _accepted(known))


def _accepted(resource: Mapping[str, Any]) -> Any:
    """status.accepted; None: there is none yet."""
    return (resource.get("status") or {}).get("accepted")
