"""The positions as the brokers' own log has them, in their order. What a coordinator answers while another takes over can be old (rule 14);
the log is what all of them go by."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, TopicPartition

OFFSETS = "__consumer_offsets"


def committed(bootstrap: str, group: str, topic: str) -> dict[int, list[int]]:
    """The offsets that were committed for the topic, by partition. Those of aborted transactions are left out."""
    found: dict[int, list[int]] = {}
    for key, value in _records(bootstrap):
        version, at = struct.unpack_from(">h", key)[0], 2
        if version > 1 or not value:  # a member's record; a position that is gone
            continue
        names = []
        for _ in range(2):
            (length,) = struct.unpack_from(">h", key, at)
            names.append(key[at + 2 : at + 2 + length].decode())
            at += 2 + length
        if names == [group, topic]:  # then the partition; in the value, after its version, the offset (OffsetCommitKey, OffsetCommitValue)
            found.setdefault(struct.unpack_from(">i", key, at)[0], []).append(struct.unpack_from(">q", value, 2)[0])
    return found


def _records(bootstrap: str) -> Iterator[tuple[bytes, bytes | None]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        left = set(consumer.list_topics(OFFSETS, timeout=20).topics[OFFSETS].partitions)
        consumer.assign([TopicPartition(OFFSETS, p, 0) for p in left])
        while left:
            for message in consumer.consume(1000, 1.0):
                if message.error():
                    left.discard(message.partition())  # its end
                elif message.key():
                    yield message.key(), message.value()
    finally:
        consumer.close()
