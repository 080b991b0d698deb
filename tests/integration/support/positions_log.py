"""The positions in the brokers' log, in their order.

A coordinator's answer may be old while another takes over (docs/protocol.md#rule-14); the log is what every coordinator
replays.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waiting import ANSWER

OFFSETS = "__consumer_offsets"
WAIT_S = 240.0  # a transaction whose owner was killed ends after 60


def committed(bootstrap: str, group: str, topic: str) -> dict[int, list[int]]:
    """The offsets committed for the topic, by partition, without those of aborted transactions."""
    offsets: dict[int, list[int]] = {}
    for key, value in _records(bootstrap):
        version, at = struct.unpack_from(">h", key)[0], 2
        if version > 1 or not value:  # a member's record, or the tombstone of a position
            continue
        names = []
        for _ in range(2):
            (length,) = struct.unpack_from(">h", key, at)
            names.append(key[at + 2 : at + 2 + length].decode())
            at += 2 + length
        # The partition follows; in the value the offset follows the version (OffsetCommitKey, OffsetCommitValue).
        if names == [group, topic]:
            offsets.setdefault(struct.unpack_from(">i", key, at)[0], []).append(struct.unpack_from(">q", value, 2)[0])
    return offsets


def _records(bootstrap: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields the records up to the log's present end. It waits for open transactions, which hide later records."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": uuid.uuid4().hex,
        "enable.auto.commit": False,
        "log_level": 0,
    }
    uncommitted = Consumer({**settings, "isolation.level": "read_uncommitted"})
    consumer = Consumer({**settings, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        partitions = [
            TopicPartition(OFFSETS, p, 0)
            for p in consumer.list_topics(OFFSETS, timeout=ANSWER).topics[OFFSETS].partitions
        ]
        ends = {p.partition: uncommitted.get_watermark_offsets(p, timeout=ANSWER)[1] for p in partitions}
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
        uncommitted.close()
