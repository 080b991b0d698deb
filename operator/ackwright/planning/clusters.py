"""The Kafka clusters of a plan: one, or that of the source and that of the sink. Pure.

What a plan has on one cluster is a plan, too. So whatever decides about a plan on its cluster decides about each part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum

from ackwright.planning.plan import DeliveryPlan
from ackwright.planning.topic_records import RecordedTopics


class ClusterRole(StrEnum):
    """Which of a pipeline's clusters."""

    SOURCE = "source"
    SINK = "sink"


def parts(plan: DeliveryPlan) -> Mapping[ClusterRole, DeliveryPlan]:
    """What the plan has on each of its clusters; the plan itself if there is one cluster.

    A declared topic that is no source is on the sink's cluster: the transform may route records to it.
    """
    if plan.sink_connection is None:
        return {ClusterRole.SOURCE: plan}
    topics = {role: tuple(t for t in plan.topics if role_of(plan, t.name) is role) for role in ClusterRole}
    only_read = replace(plan.sink, topics=(), routed=False, in_kafka=False, needs=plan.sink.source_needs)
    return {
        ClusterRole.SOURCE: replace(plan, topics=topics[ClusterRole.SOURCE], sink=only_read),
        ClusterRole.SINK: replace(plan, topics=topics[ClusterRole.SINK], source=replace(plan.source, topics=())),
    }


def role_of(plan: DeliveryPlan, topic: str, recorded: RecordedTopics | None = None) -> ClusterRole:
    """Which cluster the topic is on. A source and a sink have different topics, also on two clusters.

    recorded: for topics that the plan had before an edit, and whose throttle is still to be removed.
    """
    if plan.sink_connection is None or topic in plan.source.topics:
        return ClusterRole.SOURCE
    in_plan = topic in plan.sink.topics or any(t.name == topic for t in plan.topics)
    if in_plan or recorded is None:
        return ClusterRole.SINK
    return ClusterRole(recorded.clusters.get(topic, ClusterRole.SINK))


def needed_topics(part: DeliveryPlan) -> tuple[str, ...]:
    """The topics of a part without which the job cannot run."""
    return (*part.source.topics, *part.sink.topics)


def recorded_on(plan: DeliveryPlan, role: ClusterRole, recorded: RecordedTopics) -> RecordedTopics:
    """What is recorded of the topics on one cluster of the plan. A throttle is on the cluster where it was set."""
    with_throttle = recorded.clusters if plan.sink_connection is not None else {}
    throttled = {
        name: brokers
        for name, brokers in recorded.throttled.items()
        if with_throttle.get(name, role_of(plan, name, recorded)) == role
    }
    return replace(recorded, throttled=throttled)


def throttled_elsewhere(plan: DeliveryPlan, recorded: RecordedTopics) -> tuple[str, ...]:
    """The throttled topics whose names the plan has on another cluster than the one with the throttle."""
    return tuple(
        name
        for name in recorded.throttled
        if name in recorded.clusters and role_of(plan, name, recorded) != recorded.clusters[name]
    )
