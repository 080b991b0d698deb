"""Plain records for tests to which their keys and partitions hardly matter."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

FLUSH_S = 60
Pair = tuple[bytes | None, bytes | None]  # key, value


def produce(bootstrap: str, topic: str, *values: bytes | None, partition: int = -1, key: bytes | None = None) -> None:
    """Writes the values in their order and waits for the acknowledgements. partition -1: the partitioner's choice."""
    produce_pairs(bootstrap, topic, ((key, value) for value in values), partition)


def produce_pairs(bootstrap: str, topic: str, pairs: Iterable[Pair], partition: int = -1) -> None:
    """Writes records with these keys and values and waits for the acknowledgements."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for key, value in pairs:
        producer.produce(topic, value, key, partition=partition)
    assert producer.flush(FLUSH_S) == 0
