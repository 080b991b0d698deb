"""Reads the actual state of topics. Reads only."""

from __future__ import annotations

from collections.abc import Iterable

from ackwright.clients.kafka import Kafka
from ackwright.planning.comparison import ObservedTopic


def topics(kafka: Kafka, names: Iterable[str]) -> dict[str, ObservedTopic]:
    """Those of the named topics that exist. Raises AckwrightError if the brokers cannot be read."""
    observed: dict[str, ObservedTopic] = {}
    descriptions, configs = kafka.topics_with_configs(tuple(dict.fromkeys(names)))
    for name, description in descriptions.items():
        if name not in configs:
            continue  # brokers learn of topics one after the other: the second one does not know this topic
        observed[name] = ObservedTopic(name, description.id, description.layout, config=configs[name])
    return observed
