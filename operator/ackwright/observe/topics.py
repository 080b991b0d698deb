"""Topics as they are. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ackwright.clients.kafka import Kafka
from ackwright.planning.comparison import ObservedTopic
from ackwright.planning.replicas import Partition


def topics(kafka: Kafka, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Those of the named topics that exist, as the brokers that answer know. Raises AckwrightError if the brokers cannot be asked."""
    found: dict[str, ObservedTopic] = {}
    descriptions = kafka.topics(tuple(dict.fromkeys(names)))
    configs = kafka.topic_configs(tuple(descriptions))
    for name, description in descriptions.items():
        if name not in configs:
            continue  # the broker that was asked does not know it yet, or not any more: brokers learn of topics one after the other
        layout = tuple(_partition(p) for p in description.partitions)
        found[name] = ObservedTopic(name=name, id=str(description.topic_id), layout=layout, config=configs[name])
    return found


def _partition(told: Any) -> Partition:
    """Of a confluent_kafka TopicPartitionInfo, in which a partition without a leader names no node, or one without an address."""
    leader = told.leader.id if told.leader is not None and told.leader.id >= 0 else None
    return Partition(told.id, tuple(n.id for n in told.replicas), frozenset(n.id for n in told.isr), leader)
