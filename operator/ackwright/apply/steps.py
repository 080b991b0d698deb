"""Takes the steps of a reconcile, in their order. Writes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ackwright.apply import objects
from ackwright.apply.topic_changes import change_topics
from ackwright.apply.topics import ReadTopics
from ackwright.clients.kafka import Kafka
from ackwright.clients.kubernetes import ApiError, Kubernetes
from ackwright.errors import AckwrightError
from ackwright.planning.observed import Workload
from ackwright.planning.steps import Apply, Delete, Finalizer, Step
from ackwright.planning.topic_steps import CreateTopics, TopicStep

Object = Mapping[str, Any]


@dataclass(frozen=True)
class Applied:
    """The state after the steps."""

    resource: Object
    workload: Workload
    failure: AckwrightError | None  # of the first step that failed


@dataclass(frozen=True)
class Clients:
    """What the steps are taken with."""

    kubernetes: Kubernetes
    kafka: Callable[[TopicStep], Kafka]  # the cluster of the step's topics; raises AckwrightError without a connection
    read_topics: Callable[[Kafka], ReadTopics]
    replication_rate: int  # while replicas are copied, in bytes per second and broker


def take_steps(clients: Clients, steps: Sequence[Step], resource: Object, workload: Workload) -> Applied:
    """Takes the steps up to the first that fails. Raises ApiError if the API server may accept the same step later.

    If a step on an existing topic fails, only the other steps on topics are skipped: the job does not depend on them.
    It does depend on the creation of topics, so a creation that fails ends everything.
    """
    namespace = resource["metadata"]["namespace"]
    children = dict(workload.children)
    failure: AckwrightError | None = None
    for step in steps:
        if failure and isinstance(step, TopicStep):
            continue
        try:
            match step:
                case Finalizer():
                    resource = objects.finalizer(clients.kubernetes, resource, step)
                case Apply():
                    applied = objects.apply(clients.kubernetes, step)
                    children[applied["kind"], applied["metadata"]["name"]] = applied
                case Delete():
                    objects.delete(clients.kubernetes, namespace, step)
                case _:
                    kafka = clients.kafka(step)
                    change_topics(kafka, step, read_topics=clients.read_topics(kafka), rate=clients.replication_rate)
        except AckwrightError as e:
            if isinstance(e, ApiError):
                if e.transient:
                    raise
                e = AckwrightError(e.reason, f"{step}: {e.message}")
            failure = e
            if not isinstance(step, TopicStep) or isinstance(step, CreateTopics):
                break
    return Applied(resource, replace(workload, children=children), failure)
