"""Members of a pipeline's consumer group: the driver's own, and those that it must not have."""

from __future__ import annotations

from confluent_kafka import Consumer
from confluent_kafka.admin import ConsumerGroupDescription

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.jobspec import JobSpec, KafkaSink
from ackwright_stream.sinks.kafka.membership import Member
from integration.support.wire import Wire
from waiting import wait_until

SECONDS = 30


def join(member: Consumer, topic: str, timeout: float = 30) -> None:
    """Subscribes and polls until the group has assigned partitions to the member (seconds)."""
    member.subscribe([topic])

    def assigned() -> bool:
        member.poll(0.1)
        return bool(member.assignment())

    wait_until(assigned, f"the member of the group has partitions of {topic}", timeout)


def describe(admin: AdminClient, group: str) -> ConsumerGroupDescription:
    """The group's state and members."""
    return admin.describe_consumer_groups([group])[group].result(SECONDS)


def end_membership(member: Member) -> None:
    """Ends the driver's part of the membership. The group has the member until its session ends."""
    member.release()
    wait_until(lambda: not member._keeper.is_alive(), "the member sends no heartbeat any more", SECONDS)


def empty_group(admin: AdminClient, job: JobSpec) -> None:
    """Removes the pipeline's member from the group, as the end of its session does. No driver may keep it alive."""
    sink = job.sink_of(KafkaSink)
    with Wire(sink.brokers(job.cluster).bootstrap_servers) as wire:
        wire.leave(job.group, sink.positions.instance_id)
    wait_until(lambda: not describe(admin, job.group).members, f"group {job.group} has no member", SECONDS)
