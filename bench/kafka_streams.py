"""The windowed count of bench.state in Kafka Streams with exactly_once_v2, for information.

Its Java classes are called from here, so nothing is compiled. No function of a user runs in them: key and time are
those of the records, while the other candidates parse both from JSON.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Producer
from py4j.java_gateway import JavaGateway

from ackwright.local import jars

KAFKA_STREAMS = "Kafka Streams"
Record = tuple[bytes, bytes, int]  # key, value, and time in milliseconds since 1970
_QUEUE, _PER_POLL = 500_000, 1000  # records
_STOP_S = 30


def fill(bootstrap: str, topic: str, partitions: int, records: int, record: Callable[[int, int], Record]) -> None:
    """Produces the same number of records to each partition. record: the nth one of a partition, by partition and n."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2 * _QUEUE})
    for n in range(records // partitions):
        for partition in range(partitions):
            key, value, time_ms = record(partition, n)
            producer.produce(topic, value, key, partition, timestamp=time_ms)
        if n % _PER_POLL == 0:
            while len(producer) > _QUEUE:
                producer.poll(0.01)
    if producer.flush(120):
        raise RuntimeError(f"not all records were written to {topic} within 120 s")


@dataclass(frozen=True)
class Count:
    """The records of each key and window of a topic, counted into another one."""

    source: str
    sink: str
    window_s: int
    grace_s: int  # a count is written when a record is later than its window by so much


@contextlib.contextmanager
def counting(bootstrap: str, count: Count, threads: int, directory: Path) -> Iterator[None]:
    """Counts meanwhile. directory: of the state."""
    py4j = next(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))
    classes = f"{jars.directory('kafka-streams')}/*"
    gateway = JavaGateway.launch_gateway(jarpath=str(py4j), classpath=classes, javaopts=["-Xmx1g"], die_on_exit=True)
    settings = {
        "application.id": f"bench-{uuid.uuid4().hex[:8]}",
        "bootstrap.servers": bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "num.stream.threads": str(threads),
        "replication.factor": "3",
        "auto.offset.reset": "earliest",
        "state.dir": str(directory),
    }
    try:
        streams = _streams(gateway.jvm, count, settings)
        streams.start()
        try:
            yield
        finally:
            streams.close(gateway.jvm.java.time.Duration.ofSeconds(_STOP_S))
    finally:
        gateway.shutdown()


def _streams(jvm: Any, count: Count, settings: Mapping[str, str]) -> Any:
    """An org.apache.kafka.streams.KafkaStreams."""
    seconds, kafka, dsl = jvm.java.time.Duration.ofSeconds, jvm.org.apache.kafka, jvm.org.apache.kafka.streams.kstream
    serdes = kafka.common.serialization.Serdes
    windows = dsl.TimeWindows.ofSizeAndGrace(seconds(count.window_s), seconds(count.grace_s))
    at_the_end = dsl.Suppressed.untilWindowCloses(getattr(dsl, "Suppressed$BufferConfig").unbounded())
    text = jvm.java.lang.Class.forName("java.lang.String")
    of_windows = dsl.WindowedSerdes.timeWindowedSerdeFrom(text, count.window_s * 1000)
    builder = kafka.streams.StreamsBuilder()
    records = builder.stream(count.source, getattr(dsl.Consumed, "with")(serdes.String(), serdes.ByteArray()))
    counts = records.groupByKey().windowedBy(windows).count().suppress(at_the_end)
    counts.toStream().to(count.sink, getattr(dsl.Produced, "with")(of_windows, serdes.Long()))
    properties = jvm.java.util.Properties()
    for name, value in settings.items():
        properties.put(name, value)
    return kafka.streams.KafkaStreams(builder.build(), properties)
