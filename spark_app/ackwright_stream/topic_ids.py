"""The ids of the source's topics, as the brokers have them now.

A topic that is deleted and recreated keeps its name and gets another id (KIP-516). Spark's consumers know names alone:
one that runs on reads the new topic at the offsets of the old one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from confluent_kafka import TopicCollection

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.connection import repeated, settings
from ackwright_stream.jobspec import Cluster, JobSpec


class TopicIds(Protocol):
    """Reads the ids of topics. Raises JobError."""

    def __call__(self, topics: Iterable[str]) -> Mapping[str, str]: ...


def reader(job: JobSpec, cluster: Cluster | None = None) -> TopicIds:
    """Reads over one connection, which opens when it is first used. cluster: None for the source's."""
    clients: list[AdminClient] = []

    def read(topics: Iterable[str]) -> Mapping[str, str]:
        names = sorted(topics)

        def once(timeout: float) -> Mapping[str, str]:
            # Referenced until the answers are here: a collected client never answers.
            client = clients[0] if clients else AdminClient(settings(cluster or job.cluster))
            clients[:] = []
            answers = client.describe_topics(TopicCollection(names), request_timeout=timeout)
            ids = {name: str(answer.result(timeout).topic_id) for name, answer in answers.items()}
            clients[:] = [client]  # one that failed is not used again
            return ids

        return repeated(f"describing {', '.join(names)}", job.operation_timeout_ms / 1000, once)

    return read
