"""The end of a pipeline that leaves something on the brokers: the driver first, then the topics that go with it, then the throttle of moves
of replicas that it began, then the finalizer; all of it within a time limit.

A pipeline that keeps its topics (the default) and moves no replicas has no finalizer, and Kubernetes removes what it owns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from ackwright.api import status as api
from ackwright.api.spec import DeliveryPipeline
from ackwright.apply import objects as apply
from ackwright.apply.topic_changes import unthrottle
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import Kubernetes
from ackwright.errors import AckwrightError
from ackwright.observe.workload import workload
from ackwright.planning.declared import accepted, judged, topics_to_delete
from ackwright.planning.steps import DRIVERS, Delete
from ackwright.planning.topic_steps import RATES, Brokers, Unthrottle, together
from ackwright.render.names import FINALIZER

Object = Mapping[str, Any]

_GONE_S = 5.0  # brokers take a moment from saying that a topic is deleted to not knowing it any more
_SOON_S = 2.0
_BY_HAND = f"kafka-configs --alter --delete-config {','.join(sorted(RATES))}"


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
    goes all the same, and says what it leaves.
    """
    meta = resource["metadata"]
    if FINALIZER not in meta.get("finalizers", ()):
        return None
    found = workload(objects, meta["uid"])
    late = age > limit
    for child in found.children.values():
        if child["kind"] in DRIVERS and not child["metadata"].get("deletionTimestamp"):
            name, uid = child["metadata"]["name"], child["metadata"]["uid"]
            apply.delete(
                kubernetes,
                meta["namespace"],
                Delete(child["apiVersion"], child["kind"], name, uid, "the pipeline is deleted"),
            )
    if found.drivers and not late:
        return _SOON_S
    pipeline, _ = judged(resource)
    before = api.read(resource.get("status"))
    pipeline = pipeline or accepted(resource, before)
    theirs = topics_to_delete(pipeline) if pipeline else ()
    kept = [n for n in theirs if n in keep]
    throttled = {t.name: t.throttled_brokers for t in before.topics if t.throttled_brokers is not None}
    problem = _delete_topics(connections, pipeline, [n for n in theirs if n not in keep]) if pipeline else None
    moves = _end_throttles(connections, pipeline, throttled, late=late) if pipeline else None
    if (problem or moves) and not late:
        return _SOON_S
    if moves:
        message = f"after {limit:.0f} s: {moves}"
        apply.tell(kubernetes, resource, reason="MovesLeft", message=message, warning=True, now=now())
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


def _end_throttles(
    connections: Connections, pipeline: DeliveryPipeline, throttled: Mapping[str, tuple[int, ...]], *, late: bool
) -> str | None:
    """What is in the way, or left; None if all have ended. throttled: by topic, the brokers that we gave a rate. late: they end even while
    replicas are being moved."""
    if not throttled:
        return None
    brokers = sorted({b for given in throttled.values() for b in given})
    stays = f"the throttle of topic {', '.join(throttled)} stays on brokers {', '.join(map(str, brokers))} ({_BY_HAND})"
    try:
        key, kafka = connections.kafka(pipeline)
    except AckwrightError as e:
        return f"{stays}: {e.message}"
    try:
        racks, moving = kafka.racks(), kafka.moving()
        for step in together((), {}, Brokers(racks, moving={} if late else moving, throttled=throttled)).steps:
            if isinstance(step, Unthrottle):
                unthrottle(kafka, step)
    except AckwrightError as e:
        connections.failed(key, e)
        return f"{stays}: {e.message}"
    if any(b not in racks for b in brokers):
        return f"{stays}: broker {', '.join(str(b) for b in brokers if b not in racks)} is down"
    if moving:
        return f"replicas of {', '.join(sorted({topic for topic, _ in moving}))} are still being moved, from now on without a throttle"
    return None
