"""Members of a pipeline's consumer group: the driver's own, and those that it must not have."""

from __future__ import annotations

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import ConsumerGroupDescription

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.sinks.kafka.membership import Member
from integration.support.wire import Wire
from waiting import ANSWER, WAIT, wait_until


def join(member: Consumer, topic: str, timeout: float = WAIT) -> None:
    """Subscribes and polls until the group has assigned partitions to the member (seconds)."""
    member.subscribe([topic])

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    wait_until(assigned, f"the member of the group has partitions of {topic}", timeout)


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    """The group's state and members."""
    return wait_until(
        lambda: admin.describe_consumer_groups([group])[group].result(ANSWER), f"a description of group {group}"
    )


def delete_group(admin: AdminClient, group: str) -> None:
    """Deletes the group with its offsets; repeats the request while its coordinator loads. Raises KafkaException."""
    wait_until(lambda: admin.delete_consumer_groups([group])[group].result(ANSWER) is None, f"group {group} is deleted")


def alter_offsets(admin: AdminClient, group: str, partitions: list[TopicPartition]) -> None:
    """Sets offsets as kafka-consumer-groups --reset-offsets does; repeats the request while the coordinator loads.

    Raises KafkaException, for example if the group has a member.
    """

    def altered() -> bool:
        asked = ConsumerGroupTopicPartitions(group, partitions)
        for partition in admin.alter_consumer_group_offsets([asked])[group].result(ANSWER).topic_partitions:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return True

    wait_until(altered, f"the offsets of group {group} are set")


def end_membership(member: Member) -> None:
    """Ends the driver's part of the membership. The group has the member until its session ends."""
    member.release()
    wait_until(lambda: not member._keeper.is_alive(), "the member sends no heartbeat any more")


def empty_group(admin: AdminClient, job: JobSpec) -> None:
    """Removes the pipeline's member from the group, as the end of its session does. No driver may keep it alive."""
    sink = job.sink_of(KafkaSink)
    with Wire(sink.brokers(job.cluster).bootstrap_servers) as wire:
        wire.leave(job.group, sink.positions.instance_id)
    wait_until(lambda: not describe(admin, job.group).members, f"group {job.group} has no member")
