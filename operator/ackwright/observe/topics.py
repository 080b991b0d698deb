"""Topics as they are. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from ackwright.clients.kafka import Kafka
from ackwright.planning.comparison import ObservedTopic


def topics(kafka: Kafka, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Those of the named topics that exist. Raises AckwrightError if the brokers cannot be asked."""
    found: dict[str, ObservedTopic] = {}
    for name, description in kafka.topics(tuple(dict.fromkeys(names))).items():
        partitions = description.partitions
        found[name] = ObservedTopic(
            name=name,
            id=str(description.topic_id),
            partitions=len(partitions),
            replication_factor=min(len(p.replicas) for p in partitions),
            out_of_sync=max(len(p.replicas) - len(p.isr) for p in partitions),
            config=kafka.topic_config(name),
        )
    return found
