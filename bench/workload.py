"""Topics, input records, and append times of output records, for all measurements."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from ackwright.local.wait import wait_for
from ackwright.planning.topics import OWN_TOPICS
from ackwright_stream.admin_client import AdminClient

_REPLICAS = 3
_FETCH = 20_000  # records per call of librdkafka's consume


def create(bootstrap: str, name: str, partitions: int, config: Mapping[str, str] | None = None) -> str:
    """Creates a topic with a unique name and returns the name when all replicas are in sync."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = f"bench-{name}-{uuid.uuid4().hex[:8]}"
    new_topics = [NewTopic(topic, partitions, _REPLICAS, config=dict(config or {}))]
    for own in set(OWN_TOPICS) - set(admin.list_topics(timeout=20).topics):
        new_topics.append(NewTopic(own, 1, _REPLICAS, config={"cleanup.policy": "compact"}))
    for created, future in admin.create_topics(new_topics).items():
        try:
            future.result(30)
        except KafkaException as error:
            # A broker may not list yet what the call before created.
            if created not in OWN_TOPICS or error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def in_sync() -> bool:
        metadata = admin.list_topics(topic, timeout=5).topics[topic].partitions
        return len(metadata) == partitions and all(len(p.isrs) == _REPLICAS for p in metadata.values())

    wait_for(in_sync, f"{topic} is in sync", 60)
    return topic


def delete(bootstrap: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})  # a variable, because the futures end with the client
    for future in admin.delete_topics(list(topics)).values():
        future.result(30)


@contextmanager
def sink(bootstrap: str, partitions: int) -> Iterator[str]:
    """A topic whose timestamps are the broker's append times, the same clock for all variants; deleted afterwards."""
    topic = create(bootstrap, "sink", partitions, {"message.timestamp.type": "LogAppendTime"})
    try:
        yield topic
    finally:
        delete(bootstrap, topic)


def fill(bootstrap: str, topic: str, partitions: int, records: int, size: int) -> None:
    """Produces `records` records with a value of `size` bytes and a key, the same number to each partition."""
    payload = bytes(range(32, 127)) * (size // 95 + 1)
    fill_with(bootstrap, topic, partitions, records, lambda _, n: payload[n % 50 : n % 50 + size])


def fill_with(bootstrap: str, topic: str, partitions: int, records: int, value: Callable[[int, int], bytes]) -> None:
    """As fill(). value: the value of the nth record of a partition, by partition and n."""
    if records % partitions:
        raise ValueError(f"{records} records cannot be spread evenly over {partitions} partitions")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    per_partition = records // partitions
    for partition in range(partitions):
        for start in range(0, per_partition, 1000):
            keys = range(start, min(per_partition, start + 1000))
            rows = [{"key": b"%d:%d" % (partition, n), "value": value(partition, n)} for n in keys]
            if producer.produce_batch(topic, rows, partition) != len(rows):
                raise RuntimeError(f"the queue of {topic} is full")
            while len(producer) > 50_000:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError(f"not all records were written to {topic} within 120 s")


def offsets(bootstrap: str, topic: str) -> int:
    """The number of offsets of a topic up to its last stable ones: of records and of transactions' markers."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "isolation.level": "read_committed"})
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in partitions)
    finally:
        consumer.close()


def append_times(bootstrap: str, topic: str, records: int, timeout: float = 120) -> npt.NDArray[np.int64]:
    """The sorted append times (ms) of the topic's records, read with read_committed. timeout: seconds.

    Raises RuntimeError unless there are exactly `records`: a run that lost or duplicated records is not a measurement.
    """
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
        times: list[int] = []
        deadline = time.monotonic() + timeout
        while reading:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic} could not be read to its end within {timeout:.0f} s")
            for m in consumer.consume(_FETCH, 0.2):
                if m.error():
                    reading.discard(m.partition())
                else:
                    times.append(m.timestamp()[1])
    finally:
        consumer.close()
    if len(times) != records:
        raise RuntimeError(f"{topic} contains {len(times)} records instead of {records}")
    return np.sort(np.array(times, dtype=np.int64))
