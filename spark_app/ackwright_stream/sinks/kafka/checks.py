"""What Kafka as a sink needs from the brokers, checked before anything is written. Reads only."""

from __future__ import annotations

from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import ConfigResource, OffsetSpec, ResourceType

from ackwright_stream.cluster import Cluster, list_offsets
from ackwright_stream.connection import translate
from ackwright_stream.errors import JobError
from ackwright_stream.group_members import other_members
from ackwright_stream.jobspec import Reason

_SINCE_3_7 = "group.coordinator.rebalance.protocols"  # a broker setting that older brokers do not have
_VERIFICATION = "transaction.partition.verification.enable"


def require_supported_brokers(cluster: Cluster) -> None:
    """Raises JobError(BROKERS_UNSUPPORTED) for brokers that can leave a late offset commit pending forever.

    They are older than 3.7, or do not verify transactions. (docs/protocol.md#rule-11, KIP-890 part 1)
    """
    resources = [ConfigResource(ResourceType.BROKER, str(broker)) for broker in cluster.brokers()]
    # One broker a call, as librdkafka requires.
    answers = [cluster.admin.describe_configs([r], request_timeout=cluster.timeout)[r] for r in resources]
    for resource, future in zip(resources, answers, strict=True):
        try:
            configs = future.result(cluster.timeout)  # not retried: only this broker can answer
        except KafkaException as e:
            if e.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED:
                return  # the operator's principal checks it; the job's may lack DescribeConfigs
            raise translate(e.args[0], f"reading the configuration of broker {resource.name}") from e
        if _SINCE_3_7 not in configs:
            raise JobError(Reason.BROKERS_UNSUPPORTED, f"broker {resource.name} is older than Kafka 3.7; upgrade it")
        if configs[_VERIFICATION].value != "true":
            raise JobError(
                Reason.BROKERS_UNSUPPORTED,
                f"broker {resource.name} has {_VERIFICATION}={configs[_VERIFICATION].value}; set it to true",
            )


def require_own_group(cluster: Cluster, group: str, instance_id: str) -> None:
    """Raises JobError(GROUP_IN_USE) for a group that has another member than the pipeline's driver.

    Brokers accept the job's commits beside a member's, which moves positions on its own. (docs/protocol.md#rule-10)
    """
    others = cluster.ask(
        f"listing the members of group {group}",
        lambda admin, timeout: other_members(admin, group, instance_id, timeout),
    )
    if others:
        raise JobError(
            Reason.GROUP_IN_USE,
            f"consumer group {group} is used by other consumers ({others}); stop them, or choose another "
            "source.groupId",
        )


def topic_ends(cluster: Cluster, topic: str) -> dict[str, Any]:
    """The topic's id and the end of each partition, open transactions included, as a lane's record has them."""
    described = cluster.ask(
        f"describing {topic}",
        lambda admin, timeout: admin.describe_topics(TopicCollection([topic]), request_timeout=timeout)[topic].result(
            timeout
        ),
    )
    latest = {TopicPartition(topic, p.id): OffsetSpec.latest() for p in described.partitions}
    ends = cluster.ask(
        f"asking for the end of {topic}",
        lambda admin, timeout: list_offsets(admin, latest, IsolationLevel.READ_UNCOMMITTED, timeout),
    )
    return {"topicId": str(described.topic_id), "ends": {str(lane.partition): end for lane, end in ends.items()}}
