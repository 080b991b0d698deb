"""What Kafka as a sink needs from the brokers, checked before anything is written. Reads only."""

from __future__ import annotations

from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from ackwright_stream.broker_requirements import Unmet, unmet_by_broker, unmet_by_group
from ackwright_stream.cluster import Brokers, list_offsets
from ackwright_stream.connection import calling
from ackwright_stream.errors import JobError
from ackwright_stream.group_members import other_members
from ackwright_stream.jobspec import Reason


def require_supported_brokers(brokers: Brokers, transaction_timeout_ms: int) -> None:
    """Raises JobError(BROKERS_UNSUPPORTED) for brokers that cannot serve the job. (docs/protocol.md#rule-11)

    Does not read settings that the job's principal may not read: the operator's principal checks them.
    """
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in brokers.brokers()]
    # One broker a call, as librdkafka requires.
    answers = [brokers.admin.describe_configs([r], request_timeout=brokers.timeout)[r] for r in resources]
    for resource, future in zip(resources, answers, strict=True):
        try:
            # Not retried: only this broker can answer.
            configs = calling(
                f"reading the configuration of broker {resource.name}", partial(future.result, brokers.timeout)
            )
        except JobError as e:
            if e.reason is Reason.AUTHORIZATION_FAILED:
                return
            raise
        settings = {name: entry.value for name, entry in configs.items() if entry.value is not None}
        _require(next(unmet_by_broker(int(resource.name), settings, transaction_timeout_ms), None))


def require_own_group(brokers: Brokers, group: str, instance_id: str) -> None:
    """Raises JobError(GROUP_IN_USE) for a group that has another member than the pipeline's driver."""
    others = brokers.query(
        f"listing the members of group {group}",
        lambda admin, timeout: other_members(admin, group, instance_id, timeout),
    )
    _require(unmet_by_group(group, others))


def _require(unmet: Unmet | None) -> None:
    if unmet is not None:
        raise JobError(unmet.reason, unmet.cause, unmet.remedy)


def topic_ends(brokers: Brokers, topic: str) -> dict[str, Any]:
    """The topic's id and the end of each partition, open transactions included, as a lane's record has them."""
    described = brokers.query(
        f"describing {topic}",
        lambda admin, timeout: admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result(
            timeout
        ),
    )
    latest = {TopicPartition(topic, p.id): OffsetSpec.latest() for p in described.partitions}
    ends = brokers.query(
        f"reading the end of {topic}",
        lambda admin, timeout: list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED, timeout),
    )
    return {"topicId": str(described.topic_id), "ends": {str(lane.partition): end for lane, end in ends.items()}}
