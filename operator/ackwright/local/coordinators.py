"""The partition of Kafka's internal topics that stores a group or a transactional id.

The leader of that partition is the coordinator. Does no I/O.
"""

from __future__ import annotations


def java_hash(text: str) -> int:
    """Java's String.hashCode, computed over UTF-16 code units: a signed 32-bit integer."""
    units = text.encode("utf-16-be")
    value = 0
    for i in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[i : i + 2])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def internal_partition(name: str, partitions: int) -> int:
    """The partition that stores a group's offsets or a transactional id's state: Utils.abs(name.hashCode) % partitions.

    Kafka's Utils.abs returns 0 for the smallest integer. Sources: GroupMetadataManager.partitionFor and
    TransactionStateManager.partitionFor.
    """
    hashed = java_hash(name)
    return 0 if hashed == -(1 << 31) else abs(hashed) % partitions
