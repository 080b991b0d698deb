"""confluent-kafka's descriptions of topics and settings as plain values, which can be passed between processes."""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import TopicPartitionInfo
from confluent_kafka.admin import ConfigEntry, TopicDescription

from ackwright.planning.replicas import DescribedTopic, Partition


def described(description: TopicDescription) -> DescribedTopic:
    """The topic with its partitions."""
    return DescribedTopic(str(description.topic_id), tuple(_partition(p) for p in description.partitions))


def _partition(info: TopicPartitionInfo) -> Partition:
    """Without a leader it has no node, or one with a negative id."""
    leader = info.leader.id if info.leader is not None and info.leader.id >= 0 else None
    return Partition(info.id, tuple(n.id for n in info.replicas), frozenset(n.id for n in info.isr), leader)


def values(entries: Mapping[str, ConfigEntry]) -> dict[str, str]:
    """The settings that have a value."""
    return {entry.name: entry.value for entry in entries.values() if entry.value is not None}
