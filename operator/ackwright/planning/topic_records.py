"""What the status records about topics: how it is read again, and how it is written. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ackwright.api.status import LONGEST_ACTION, Status, TopicStatus
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.declared import accepted_losses
from ackwright.planning.durability import INTERNAL
from ackwright.planning.observed import KafkaState
from ackwright.planning.topic_steps import Reassign, TopicStep, Unthrottle, topics_in_creations


@dataclass(frozen=True)
class RecordedTopics:
    """What was known about topics before this reconcile, each by the topic's name."""

    ids: Mapping[str, str] = field(default_factory=dict)  # as last observed
    throttled: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # brokers that the operator throttled
    clusters: Mapping[str, str] = field(default_factory=dict)  # source or sink, of a pipeline with two clusters
    accepted_losses: Mapping[str, str] = field(default_factory=dict)  # ids of deleted topics whose loss is accepted
    conflicts: Mapping[str, str] = field(default_factory=dict)  # older pipelines that declare the topic differently
    creations: frozenset[str] = frozenset()  # topics whose creation was intended, and perhaps done

    def is_own(self, name: str, topic_id: str) -> bool:
        """Whether the topic of this name and id is the one that the pipeline had.

        The status of a reconcile that creates a topic does not have its id yet. That the operator was about to create
        it, and had never recorded one of that name, then says the same.
        """
        return self.ids[name] == topic_id if name in self.ids else name in self.creations

    def is_replaced(self, name: str, observed: Mapping[str, ObservedTopic]) -> bool:
        """Whether the topic was deleted and created again, and that loss is not accepted."""
        return self._lost(name) and name in observed and observed[name].id != self.ids[name]

    def is_deleted(self, name: str, observed: Mapping[str, ObservedTopic]) -> bool:
        """Whether the topic existed and does not exist now, and that loss is not accepted.

        Creating it again would hide that records are lost. A broker that has just started may not know the topic yet.
        """
        return self._lost(name) and name not in observed

    def _lost(self, name: str) -> bool:
        return name in self.ids and self.ids[name] != self.accepted_losses.get(name)


def recorded_topics(status: Status, annotations: Mapping[str, str], conflicts: Mapping[str, str]) -> RecordedTopics:
    """What is known before. conflicts: by topic, the older pipeline that declares it differently."""
    return RecordedTopics(
        ids={t.name: t.id for t in status.topics},
        throttled={t.name: t.throttled_brokers for t in status.topics if t.throttled_brokers is not None},
        clusters={t.name: t.cluster for t in status.topics if t.cluster is not None},
        accepted_losses=accepted_losses(annotations),
        conflicts=conflicts,
        creations=topics_in_creations(status.intent.actions, LONGEST_ACTION) if status.intent else frozenset(),
    )


def topic_statuses(
    before: Sequence[TopicStatus],
    kafka: KafkaState,
    names: Collection[str],
    steps: Sequence[TopicStep],
    replaced: Collection[str],
    *,
    done: bool,
) -> tuple[TopicStatus, ...]:
    """The topics for the status, before the steps (done False) or after them.

    A replaced topic keeps its earlier id until its loss is accepted. A throttle is recorded before it is set and until
    it is removed. names: of the topics that matter to the pipeline; an absent topic keeps its entry only if it is one
    of them, or is throttled.
    """
    ids = {t.name: t.id for t in before}
    throttled = {t.name: t.throttled_brokers for t in before}
    for step in steps:
        if isinstance(step, Reassign) and step.copies:
            throttled[step.topic] = tuple(sorted({*(throttled.get(step.topic) or ()), *step.throttled}))
        elif isinstance(step, Unthrottle) and done:
            left = tuple(b for b in throttled.get(step.topic) or () if b not in step.brokers)
            throttled[step.topic] = left or None
    absent = [
        t.model_copy(update={"throttled_brokers": throttled.get(t.name)}) for t in before if t.name not in kafka.topics
    ]
    return (
        *(
            _topic_status(kafka, topic, ids[name] if name in replaced else topic.id, throttled.get(name))
            for name, topic in kafka.topics.items()
            if name not in INTERNAL
        ),
        *(t for t in absent if t.name in names or t.throttled_brokers is not None),
    )


def _topic_status(
    kafka: KafkaState, topic: ObservedTopic, topic_id: str, throttled: tuple[int, ...] | None
) -> TopicStatus:
    return TopicStatus(
        name=topic.name,
        id=topic_id,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        min_insync_replicas=topic.min_insync,
        in_sync_replicas=topic.in_sync,
        moving=sum(name == topic.name for name, _ in kafka.moving),
        throttled_brokers=throttled,
    )
