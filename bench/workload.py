"""Topics, records that go in, and what came out when: the parts that every measurement shares."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.local.wait import wait_for
from ackwright.planning.topics import LANES_TOPIC
from ackwright_stream.admin_client import AdminClient

_REPLICAS = 3
_FETCH = 20_000  # records taken from librdkafka in one call


def create(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """Creates a topic under a name that nobody else has and returns the name, once all replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"bench-{name}-{uuid.uuid4().hex[:8]}"
    wanted = [NewTopic(topic, partitions, _REPLICAS, config=dict(config or {}))]
    if LANES_TOPIC not in admin.list_topics(timeout=20).topics:
        wanted.append(NewTopic(LANES_TOPIC, 1, _REPLICAS, config={"cleanup.policy": "compact"}))
    for future in admin.create_topics(wanted).values():
        future.result(30)

    def in_sync() -> bool:
        found = admin.list_topics(topic, timeout=5).topics[topic].partitions
        return len(found) == partitions and all(len(p.isrs) == _REPLICAS for p in found.values())

    wait_for(in_sync, f"{topic} is in sync", 60)
    return topic


def delete(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a name of its own: the futures end with it
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)


@contextmanager
def sink(bootstrap: str, partitions: int) -> Iterator[str]:
    """A topic whose records carry the time at which the broker appended them: one clock for whoever writes. Deleted afterwards."""
    topic = create(bootstrap, "sink", partitions, {"message.timestamp.type": "LogAppendTime"})
    try:
        yield topic
    finally:
        delete(bootstrap, topic)


def fill(bootstrap: str, topic: str, partitions: int, records: int, size: int) -> None:
    """records records of size bytes (value), with keys, as many into each partition."""
    if records % partitions:
        raise ValueError(f"{records} records do not spread evenly over {partitions} partitions")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    payload = bytes(range(32, 127)) * (size // 95 + 1)
    each = records // partitions
    for partition in range(partitions):
        for start in range(0, each, 1000):
            keys = range(start, min(each, start + 1000))
            rows = [{"key": b"%d:%d" % (partition, n), "value": payload[n % 50 : n % 50 + size]} for n in keys]
            if producer.produce_batch(topic, rows, partition) != len(rows):
                raise RuntimeError(f"the queue of {topic} is full")
            while len(producer) > 50_000:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError(f"{topic} could not be filled within 120 s")


def append_times(bootstrap: str, topic: str, records: int, timeout: float = 120) -> npt.NDArray[np.int64]:
    """When each record of the topic was appended (ms), in order of time, as a read_committed reader sees the topic to its end.
    Raises RuntimeError unless there are exactly as many as expected: a fast run that lost or repeated some measures nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        reading = set(consumer.list_topics(topic, timeout=20).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, 0) for p in reading])
        found: list[int] = []
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be read to its end within {timeout:.0f} s")
            for m in consumer.consume(_FETCH, 0.2):
                if m.error():
                    reading.discard(m.partition())
                else:
                    found.append(m.timestamp()[1])
    finally:
        consumer.close()
    if len(found) != records:
        raise RuntimeError(f"{topic} holds {len(found)} records instead of {records}")
    return np.sort(np.array(found, dtype=np.int64))
