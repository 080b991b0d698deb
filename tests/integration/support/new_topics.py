"""Topics with unique names that are ready to be written, and changes of their settings."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from ackwright_stream.admin_client import AdminClient
from waiting import ANSWER, wait_until

NewTopicName = Callable[..., str]


def create_topic(
    admin: AdminClient,
    *,
    partitions: int = 1,
    replicas: int = 3,
    config: Mapping[str, str] | None = None,
    name: str = "t",
) -> str:
    """Creates a topic under a unique name, and returns the name once every partition has all its replicas in sync."""
    unique = f"{name}-{uuid.uuid4().hex[:10]}"
    new = NewTopic(unique, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
    admin.create_topics([new], operation_timeout=ANSWER)[unique].result(ANSWER)

    def in_sync() -> bool:
        partitions_ = admin.list_topics(unique, timeout=5).topics[unique].partitions
        return len(partitions_) == partitions and all(len(p.isrs) == replicas for p in partitions_.values())

    wait_until(in_sync, f"{unique} is in sync")
    return unique


def set_topic(servers: str, topic: str, name: str, value: str) -> None:
    """Changes a setting of a topic."""
    change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    admin = AdminClient({"bootstrap.servers": servers})  # a collected client never answers
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(ANSWER)
