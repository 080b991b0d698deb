"""The end of a pipeline whose topics go with it: the driver first, then the topics, then the finalizer; all of it within a time limit.

A pipeline that keeps its topics (the default) has no finalizer, and Kubernetes removes what it owns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ackwright.api import status as api
from ackwright.api.spec import DeliveryPipeline
from ackwright.apply import objects as apply
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import Kubernetes
from ackwright.errors import AckwrightError
from ackwright.observe.workload import workload
from ackwright.planning.declared import accepted, judged, topics_to_delete
from ackwright.planning.steps import DRIVERS, Delete
from ackwright.render.names import FINALIZER

Object = Mapping[str, Any]

_GONE_S = 5.0  # brokers take a moment from saying that a topic is deleted to not knowing it any more
_SOON_S = 2.0


def finish(
    kubernetes: Kubernetes,
    connections: Connections,
    resource: Object,
    objects: Iterable[Object],
    *,
    keep: Collection[str],
    age: float,
    limit: float,
    now: Callable[[], str],
) -> float | None:
    """One step towards the end. Returns the seconds until the next look, None if there is nothing left to do.

    keep: topics that another pipeline declares as well. age: seconds since the deletion was asked for; limit: after so many the pipeline
    goes without its topics, and says so.
    """
    meta = resource["metadata"]
    if FINALIZER not in meta.get("finalizers", ()):
        return None
    found = workload(objects, meta["uid"])
    late = age > limit
    for child in found.children.values():
        if child["kind"] in DRIVERS and not child["metadata"].get("deletionTimestamp"):
            name, uid = child["metadata"]["name"], child["metadata"]["uid"]
            apply.delete(kubernetes, meta["namespace"], Delete(child["apiVersion"], child["kind"], name, uid, "the pipeline is deleted"))
    if found.drivers and not late:
        return _SOON_S
    pipeline, _ = judged(resource)
    pipeline = pipeline or accepted(resource, api.read(resource.get("status")))
    theirs = topics_to_delete(pipeline) if pipeline else ()
    kept = [n for n in theirs if n in keep]
    problem = _delete_topics(connections, pipeline, [n for n in theirs if n not in keep]) if pipeline else None
    if problem and not late:
        return _SOON_S
    if problem:
        message = f"after {limit:.0f} s these topics are still there, and stay: {problem}"
        apply.tell(kubernetes, resource, reason="TopicsNotDeleted", message=message, warning=True, now=now())
    if kept:
        message = f"another pipeline declares these topics as well, so they stay: {', '.join(sorted(kept))}"
        apply.tell(kubernetes, resource, reason="TopicsKept", message=message, warning=False, now=now())
    left = [f for f in meta["finalizers"] if f != FINALIZER]
    change = {"metadata": {"finalizers": left, "resourceVersion": meta["resourceVersion"]}}
    kubernetes.merge(resource["apiVersion"], resource["kind"], meta["namespace"], meta["name"], change)
    return None


def _delete_topics(connections: Connections, pipeline: DeliveryPipeline, names: Sequence[str]) -> str | None:
    """What is in the way, None if all are gone."""
    if not names:
        return None
    try:
        key, kafka = connections.kafka(pipeline)
    except AckwrightError as e:
        return f"{', '.join(names)}: {e.message}"
    try:
        for name in names:
            kafka.delete_topic(name)
        deadline = time.monotonic() + _GONE_S
        while (left := kafka.topics(names)) and time.monotonic() < deadline:
            time.sleep(0.1)
    except AckwrightError as e:
        connections.failed(key, e)
        return f"{', '.join(names)}: {e.message}"
    return f"{', '.join(left)} is being deleted by the brokers" if left else None
