"""Which partition of Kafka's internal topics keeps a group or a transactional id; its leader is the coordinator. Pure."""

from __future__ import annotations


def java_hash(text: str) -> int:
    """String.hashCode of Java (over UTF-16 units): 32 bits, signed."""
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def internal_partition(name: str, partitions: int) -> int:
    """Where Kafka keeps a group's offsets or a transactional id's state: Utils.abs(name.hashCode) % partitions, and abs of the smallest
    number is 0. (GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor)"""
    number = java_hash(name)
    return 0 if number == -(1 << 31) else abs(number) % partitions
