"""The positions as the brokers' own log has them, in their order. What a coordinator answers while another takes over can be old (rule 14);
the log is what all of them go by."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

OFFSETS = "__consumer_offsets"
WAIT_S = 90.0  # a transaction whose owner was killed ends after 60


def committed(bootstrap: str, group: str, topic: str) -> dict[int, list[int]]:
    """The offsets that were committed for the topic, by partition. Those of aborted transactions are left out."""
    offsets: dict[int, list[int]] = {}
    for key, value in _records(bootstrap):
        version, at = struct.unpack_from(">h", key)[0], 2
        if version > 1 or not value:  # a member's record; a position that is gone
            continue
        names = []
        for _ in range(2):
            (length,) = struct.unpack_from(">h", key, at)
            names.append(key[at + 2 : at + 2 + length].decode())
            at += 2 + length
        if names == [
            group,
            topic,
        ]:  # then the partition; in the value, after its version, the offset (OffsetCommitKey, OffsetCommitValue)
            offsets.setdefault(struct.unpack_from(">i", key, at)[0], []).append(struct.unpack_from(">q", value, 2)[0])
    return offsets


def _records(bootstrap: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Up to the end that the log has now. An open transaction, which readers of committed records cannot pass, is waited for."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    all_of_it = Consumer({**settings, "isolation.level": "read_uncommitted"})
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        partitions = [
            TopicPartition(OFFSETS, p, 0) for p in consumer.list_topics(OFFSETS, timeout=20).topics[OFFSETS].partitions
        ]
        ends = {p.partition: all_of_it.get_watermark_offsets(p, timeout=20)[1] for p in partitions}
        consumer.assign(partitions)
        deadline = time.monotonic() + WAIT_S
        while ends:
            assert time.monotonic() < deadline, (
                f"a transaction is open in {OFFSETS}, before these ends of partitions: {ends}"
            )
            for message in consumer.consume(1000, 1.0):
                if not message.error():
                    if message.key():
                        yield message.key(), message.value()
                elif message.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(message.error())
                elif message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
    finally:
        consumer.close()
        all_of_it.close()
