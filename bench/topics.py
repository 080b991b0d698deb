"""Measures how long the operator takes to read a pipeline's topics: 200 topics with 12 partitions each."""

from __future__ import annotations

import time
import uuid

from confluent_kafka.admin import NewTopic

from ackwright.clients.kafka import Kafka
from ackwright.observe.topics import topics
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import Cluster
from bench.context import Context
from bench.figures import Figure, percentiles

TOPICS, PARTITIONS = 200, 12
TARGET = 2.0  # seconds
_TIMEOUT = 300.0  # seconds


def measure(context: Context) -> list[Figure]:
    """The median time of the rounds (s).

    The topics have one replica, because more replicas enlarge the answers and not the number of calls.
    """
    rounds = context.size(20, 5, context.rounds)
    admin = AdminClient({"bootstrap.servers": context.bootstrap})
    names = [f"wide-{uuid.uuid4().hex[:8]}-{n}" for n in range(TOPICS)]
    context.report(f"creating {TOPICS} topics with {PARTITIONS} partitions each")
    try:
        new_topics = [NewTopic(n, PARTITIONS, 1) for n in names]
        for future in admin.create_topics(new_topics, operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT).values():
            future.result(_TIMEOUT)
        kafka = Kafka(Cluster(context.bootstrap))
        durations = []
        for _ in range(rounds + 1):
            started_at = time.perf_counter()
            kafka.racks()
            states = topics(kafka, names)
            durations.append(time.perf_counter() - started_at)
            if len(states) != TOPICS or any(t.partitions != PARTITIONS for t in states.values()):
                raise RuntimeError(f"{len(states)} of {TOPICS} topics were read with {PARTITIONS} partitions each")
    finally:
        for future in admin.delete_topics(names, operation_timeout=_TIMEOUT, request_timeout=_TIMEOUT).values():
            future.exception(_TIMEOUT)
    p50, p99 = percentiles(durations[1:])
    context.report(f"read {TOPICS} topics in {p50:.2f} s")
    note = f"p99 {p99:.2f} s, the first {durations[0]:.2f} s; {rounds} rounds; 3 calls for any number of topics"
    return [
        Figure(
            f"time to read {TOPICS} topics of {PARTITIONS} partitions, median",
            round(p50, 2),
            "s",
            TARGET,
            at_least=False,
            note=note,
        )
    ]
