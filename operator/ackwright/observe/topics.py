"""Topics as they are. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from ackwright.clients.kafka import Kafka
from ackwright.planning.comparison import ObservedTopic


def topics(kafka: Kafka, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Those of the named topics that exist, as the brokers that answer know. Raises AckwrightError if the brokers cannot be asked."""
    found: dict[str, ObservedTopic] = {}
    descriptions = kafka.topics(tuple(dict.fromkeys(names)))
    configs = kafka.topic_configs(tuple(descriptions))
    for name, description in descriptions.items():
        partitions = description.partitions
        if name not in configs:
            continue  # the broker that was asked does not know it yet, or not any more: brokers learn of topics one after the other
        found[name] = ObservedTopic(
            name=name,
            id=str(description.topic_id),
            partitions=len(partitions),
            replication_factor=min(len(p.replicas) for p in partitions),
            out_of_sync=max(len(p.replicas) - len(p.isr) for p in partitions),
            config=configs[name],
        )
    return found
