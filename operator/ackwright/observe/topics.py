"""Reads the actual state of topics. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ackwright.clients.kafka import Kafka
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.replicas import Partition


def topics(kafka: Kafka, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Those of the named topics that exist. Raises AckwrightError if the brokers cannot be read."""
    observed: dict[str, ObservedTopic] = {}
    descriptions = kafka.topics(tuple(dict.fromkeys(names)))
    configs = kafka.topic_configs(tuple(descriptions))
    for name, description in descriptions.items():
        if name not in configs:
            continue  # brokers learn of topics one after the other: the second one does not know this topic
        layout = tuple(_partition(p) for p in description.partitions)
        observed[name] = ObservedTopic(name=name, id=str(description.topic_id), layout=layout, config=configs[name])
    return observed


def _partition(info: Any) -> Partition:
    """The partition of a confluent_kafka TopicPartitionInfo.

    Without a leader that has no node, or one with a negative id.
    """
    leader = info.leader.id if info.leader is not None and info.leader.id >= 0 else None
    return Partition(info.id, tuple(n.id for n in info.replicas), frozenset(n.id for n in info.isr), leader)
