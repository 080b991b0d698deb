"""What one look at a pipeline's topics takes: 200 topics of 12 partitions each, read as the operator reads them. No Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from confluent_kafka.admin import NewTopic

from ackwright.clients.kafka import Kafka
from ackwright.observe.topics import topics
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Cluster
from bench.figures import Figure, percentiles

TOPICS, PARTITIONS = 200, 12
TARGET_S = 2.0
_PATIENCE_S = 300.0


def measure(bootstrap: str, rounds: int, say: Callable[[str], None]) -> list[Figure]:
    """The median over `rounds` (s). One replica each: how many there are changes the size of an answer, not the number of calls."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"wide-{uuid.uuid4().hex[:8]}-{n}" for n in range(TOPICS)]
    say(f"making {TOPICS} topics of {PARTITIONS} partitions")
    try:
        wanted = [NewTopic(n, PARTITIONS, 1) for n in names]
        for future in admin.create_topics(wanted, operation_timeout=_PATIENCE_S, request_timeout=_PATIENCE_S).values():
            future.result(_PATIENCE_S)
        kafka = Kafka(Cluster(bootstrap))
        took = []
        for _ in range(rounds + 1):
            began = time.perf_counter()
            kafka.racks()
            found = topics(kafka, names)
            took.append(time.perf_counter() - began)
            if len(found) != TOPICS or any(t.partitions != PARTITIONS for t in found.values()):
                raise RuntimeError(f"{len(found)} of {TOPICS} topics were read")
    finally:
        for future in admin.delete_topics(names, operation_timeout=_PATIENCE_S, request_timeout=_PATIENCE_S).values():
            future.exception(_PATIENCE_S)
    p50, p99 = percentiles(took[1:])
    say(f"{TOPICS} topics read in {p50:.2f} s")
    note = f"p99 {p99:.2f} s, the first {took[0]:.2f} s; {rounds} times; 3 calls, however many topics"
    return [
        Figure(
            f"{TOPICS} topics of {PARTITIONS} partitions read, median",
            round(p50, 2),
            "s",
            TARGET_S,
            at_least=False,
            note=note,
        )
    ]
