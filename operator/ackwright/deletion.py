"""The deletion of a pipeline that leaves something on the brokers, within a time limit.

The driver ends first. Then its topics with deletionPolicy Delete are deleted, the throttles of its moves are removed,
and at last the finalizer. A pipeline that keeps its topics (the default) and moves no replicas has no finalizer:
Kubernetes removes what it owns.

A namespace that is deleted takes the operator's Role with it while its pipelines wait. Then the finalizer is removed by
the permission on pipelines of all namespaces (the chart's rbac.deletions), and topics are deleted only if Kubernetes
reports that no pod is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.api.status import Status, parse_status
from ackwright.apply import objects as apply
from ackwright.apply.topic_changes import unthrottle
from ackwright.clients.attempts import ConnectionBusy
from ackwright.clients.connections import Connections
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.errors import AckwrightError
from ackwright.observe.namespaces import has_no_pods
from ackwright.observe.workload import workload
from ackwright.planning.clusters import ClusterRole, recorded_on, role_of
from ackwright.planning.declared import (
    accepted_pipeline,
    parse_resource,
    retained_topics,
    topics_to_delete,
    unparsed_topics_to_delete,
)
from ackwright.planning.plan import plan
from ackwright.planning.steps import DRIVERS, Delete, Finalizer
from ackwright.planning.topic_records import RecordedTopics, recorded_topics
from ackwright.planning.topic_steps import RATES, Brokers, Unthrottle
from ackwright.planning.topic_work import combined_work
from ackwright.reasons import ConditionReason
from ackwright.render.names import FINALIZER
from ackwright.wording import named

log = logging.getLogger("ackwright")

Object = Mapping[str, Any]

_GONE_S = 5.0  # brokers list a topic for a moment after they have confirmed its deletion
_SOON_S = 2.0
_FORBIDDEN = 403
_UNKNOWN_DRIVERS = "a driver may still write to them, because the pods of the namespace cannot be listed"
_UNKNOWN_PIPELINES = "pipelines that cannot be listed may declare them"
_BUSY = "the cluster answers slowly, and other pipelines wait for it"
_BY_HAND = f"kafka-configs --alter --delete-config {','.join(sorted(RATES))}"
_DELETE_BY_HAND = "kafka-topics --delete --topic TOPIC"


@dataclass(frozen=True)
class _Remaining:
    """What remains on the brokers after a step, and why; None: nothing."""

    topics: str | None = None  # to be deleted by a later step
    throttles: str | None = None  # to be removed by a later step
    replaced_topics: str | None = None  # stay: they have another id than the recorded one


class _Drivers(Enum):
    """Whether a deleted pipeline still has drivers."""

    GONE = "gone"
    LEFT = "left"
    UNKNOWN = "unknown"  # the operator lacks the permission to see or to end them


def finish(
    kubernetes: Kubernetes,
    connections: Connections,
    resource: Object,
    objects: Iterable[Object] | None,
    *,
    shared: frozenset[str],
    pipelines_listed: bool,
    age: float,
    limit: float,
    now: Callable[[], str],
    own_namespace: str,
) -> float | None:
    """Takes one step towards the end of a pipeline.

    Returns the seconds until the next one; None: nothing is left to do.

    objects: of the pipeline; None: its namespace is lost, so they cannot be listed. shared: topics that another
    pipeline declares too. pipelines_listed: whether the pipelines of all watched namespaces are known, of which each
    may share a topic. age: seconds since the deletion was requested; after `limit` seconds the pipeline goes anyway,
    and Events name what it leaves behind: in the pipeline's namespace, or if that is lost in the operator's own one.
    """
    meta = resource["metadata"]
    if FINALIZER not in meta.get("finalizers", ()):
        return None
    late = age > limit
    drivers = _end_drivers(kubernetes, resource, objects)
    if drivers is not _Drivers.GONE and not late:
        return _SOON_S
    status = parse_status(resource.get("status"))
    pipeline = _pipeline(resource, status)
    # An edit that was refused deletes nothing, and retains what it says.
    retained = retained_topics(resource)
    own_topics = tuple(t for t in topics_to_delete(pipeline) if t not in retained) if pipeline else ()
    recorded = recorded_topics(status, {}, {})
    remaining = _Remaining()
    if pipeline:
        own = [n for n in own_topics if n not in shared]
        hindrance = _reason_to_keep(drivers, pipelines_listed=pipelines_listed) if own else None
        remaining = _clean_up(connections, pipeline, () if hindrance else own, recorded, late=late)
        remaining = replace(remaining, topics=f"{', '.join(own)}: {hindrance}") if hindrance else remaining
    if (remaining.topics or remaining.throttles) and not late:
        return _SOON_S

    def write_event(reason: ConditionReason, message: str, *, warning: bool) -> None:
        if objects is None:
            message = f"{meta['namespace']}/{meta['name']}: {message}"
            log.warning("%s", message)
        about = resource if objects is not None else apply.operator_of(own_namespace)
        apply.write_event(kubernetes, about, reason=reason.value, message=message, warning=warning, now=now())

    if pipeline is None:
        left = unparsed_topics_to_delete(resource, status) - shared - retained
        for reason, message in _left_without_spec(left, recorded):
            write_event(reason, message, warning=True)
    if remaining.throttles:
        write_event(ConditionReason.MOVES_LEFT, f"after {limit:.0f} s: {remaining.throttles}", warning=True)
    if remaining.topics:
        message = f"topics not deleted within {limit:.0f} s: {remaining.topics}"
        write_event(ConditionReason.TOPICS_NOT_DELETED, message, warning=True)
    if remaining.replaced_topics:
        message = f"topics not deleted, because they may be another owner's: {remaining.replaced_topics}"
        write_event(ConditionReason.TOPICS_NOT_DELETED, message, warning=True)
    still_declared = sorted(n for n in own_topics if n in shared)
    if still_declared:
        write_event(
            ConditionReason.TOPICS_RETAINED,
            f"not deleted, because another pipeline declares them: {', '.join(still_declared)}",
            warning=False,
        )
    apply.finalizer(kubernetes, resource, Finalizer(present=False))
    return None


def _end_drivers(kubernetes: Kubernetes, resource: Object, objects: Iterable[Object] | None) -> _Drivers:
    """Deletes what creates drivers. Returns whether a driver's pod is left."""
    meta = resource["metadata"]
    if objects is None:
        return _drivers_of_lost_namespace(kubernetes, meta["namespace"])
    observed = workload(objects, meta["uid"])
    refused = False
    for child in observed.children.values():
        if child["kind"] in DRIVERS and not child["metadata"].get("deletionTimestamp"):
            name, uid = child["metadata"]["name"], child["metadata"]["uid"]
            step = Delete(child["apiVersion"], child["kind"], name, uid, "the pipeline is deleted")
            try:
                apply.delete(kubernetes, meta["namespace"], step)
            except ApiError as e:
                if e.status != _FORBIDDEN:
                    raise
                refused = True  # the namespace is being deleted, with the operator's Role first: it removes the drivers
    if refused:
        return _Drivers.UNKNOWN
    return _Drivers.LEFT if observed.drivers else _Drivers.GONE


def _drivers_of_lost_namespace(kubernetes: Kubernetes, namespace: str) -> _Drivers:
    """Whether a pipeline has drivers whose pods cannot be listed. Kubernetes itself reports when no pod is left."""
    try:
        deleted = kubernetes.get("v1", "Namespace", "", namespace)
    except ApiError as e:
        if e.status != _FORBIDDEN:
            raise
        return _Drivers.UNKNOWN
    return _Drivers.GONE if deleted is not None and has_no_pods(deleted) else _Drivers.UNKNOWN


def _reason_to_keep(drivers: _Drivers, *, pipelines_listed: bool) -> str | None:
    """Why topics are not deleted although their pipeline is; None: they are."""
    if drivers is _Drivers.UNKNOWN:
        return _UNKNOWN_DRIVERS
    return None if pipelines_listed else _UNKNOWN_PIPELINES


def _pipeline(resource: Object, status: Status) -> DeliveryPipeline | None:
    """The pipeline by the spec in force; by its own if that is not valid, or if none was accepted."""
    return accepted_pipeline(resource, status) or parse_resource(resource)[0]


def _left_without_spec(topics: Collection[str], recorded: RecordedTopics) -> Iterator[tuple[ConditionReason, str]]:
    """The Events of a pipeline without a valid spec. topics: those that it was to delete."""
    why = "neither the present spec nor the last accepted one is valid, so the operator does not connect to the brokers"
    if recorded.throttled:
        yield ConditionReason.MOVES_LEFT, f"{_left_throttle(recorded.throttled)}: {why}"
    if topics:
        names = ", ".join(sorted(topics))
        yield ConditionReason.TOPICS_NOT_DELETED, f"topics not deleted ({_DELETE_BY_HAND}): {names}: {why}"


def _left_throttle(throttled: Mapping[str, tuple[int, ...]]) -> str:
    """The throttle that stays, and how a person removes it. throttled: by topic, the brokers."""
    brokers = _brokers(throttled)
    where = f" on {named('broker', brokers)}" if brokers else ""
    return f"the throttle of {named('topic', throttled)} stays{where} ({_BY_HAND})"


def _brokers(throttled: Mapping[str, tuple[int, ...]]) -> list[int]:
    return sorted({b for ids in throttled.values() for b in ids})


def _clean_up(
    connections: Connections,
    pipeline: DeliveryPipeline,
    topics: Sequence[str],
    recorded: RecordedTopics,
    *,
    late: bool,
) -> _Remaining:
    """Deletes topics and removes throttles, each on its cluster. Returns what remains of both.

    late: as for _end_throttles().
    """
    delivery = plan(pipeline)
    own_topics, throttles, replaced_topics = list[str](), list[str](), list[str]()
    for role in ClusterRole:
        own = [name for name in topics if role_of(delivery, name) is role]
        own_throttled = recorded_on(delivery, role, recorded).throttled
        remaining, replaced = _delete_topics(connections, pipeline, role, own, recorded)
        if remaining:
            own_topics.append(remaining)
        if replaced:
            ids = "the topic's id is not the one that the pipeline has recorded"
            replaced_topics.append(f"{', '.join(replaced)}: {ids}")
        if remaining := _end_throttles(connections, pipeline, role, own_throttled, late=late):
            throttles.append(remaining)
    return _Remaining(*("; ".join(parts) or None for parts in (own_topics, throttles, replaced_topics)))


def _delete_topics(
    connections: Connections,
    pipeline: DeliveryPipeline,
    role: ClusterRole,
    names: Sequence[str],
    recorded: RecordedTopics,
) -> tuple[str | None, Sequence[str]]:
    """Deletes the topics of one cluster. Returns those that remain, and why (None: none), and those that stay.

    Kafka's clients delete by name. A topic that has the name, and is not the one that the pipeline had, may be
    somebody else's, and stays. A topic's id never changes, so there is nothing to wait for.
    """
    if not names:
        return None, ()
    try:
        key, kafka = connections.kafka(pipeline, role)
    except AckwrightError as e:
        return f"{', '.join(names)}: {e.message}", ()
    own, replaced = names, list[str]()
    try:
        with connections.attempt(key, kafka, pipeline.metadata.namespace, writes=True):
            present = kafka.topics(names)
            replaced = [name for name, topic in present.items() if not recorded.is_own(name, topic.id)]
            own = [name for name in present if name not in replaced]
            if not own:
                return None, replaced
            for name in own:
                kafka.delete_topic(name)
            deadline = time.monotonic() + _GONE_S
            while (remaining := kafka.topics(own)) and time.monotonic() < deadline:
                time.sleep(0.1)
    except ConnectionBusy:
        return f"{', '.join(own)}: {_BUSY}", replaced
    except AckwrightError as e:
        connections.failed(key, e)
        return f"{', '.join(own)}: {e.message}", replaced
    return f"{', '.join(remaining)}: the brokers have not completed the deletion" if remaining else None, replaced


def _end_throttles(
    connections: Connections,
    pipeline: DeliveryPipeline,
    role: ClusterRole,
    throttled: Mapping[str, tuple[int, ...]],
    *,
    late: bool,
) -> str | None:
    """Removes the throttles of one cluster. Returns what is left, and why; None: nothing.

    throttled: by topic, the brokers that the operator throttled. late: also while replicas are being moved.
    """
    if not throttled:
        return None
    brokers, left = _brokers(throttled), _left_throttle(throttled)
    try:
        key, kafka = connections.kafka(pipeline, role)
    except AckwrightError as e:
        return f"{left}: {e.message}"
    try:
        with connections.attempt(key, kafka, pipeline.metadata.namespace, writes=True):
            racks, moving = kafka.racks(), kafka.moving()
            for step in combined_work((), {}, Brokers(racks, moving={} if late else moving, throttled=throttled)).steps:
                if isinstance(step, Unthrottle):
                    unthrottle(kafka, step)
    except ConnectionBusy:
        return f"{left}: {_BUSY}"
    except AckwrightError as e:
        connections.failed(key, e)
        return f"{left}: {e.message}"
    down = [b for b in brokers if b not in racks]
    if down:
        return f"{left}: {named('broker', down)} {'is' if len(down) == 1 else 'are'} down"
    if moving:
        topics = named("topic", sorted({topic for topic, _ in moving}))
        return f"replicas of {topics} are still being moved, now without a throttle"
    return None
