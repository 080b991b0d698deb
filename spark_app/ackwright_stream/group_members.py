"""The members of the pipeline's consumer group."""

from __future__ import annotations

import re

from confluent_kafka import ConsumerGroupState, KafkaException

from ackwright_stream.admin_client import AdminClient
from ackwright_stream.broker_requirements import OtherMembers

_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NEW_PROTOCOL = "Dead"  # the state that DescribeGroups has for a group of another kind than the classic one


def other_members(admin: AdminClient, group: str, instance_id: str, timeout: float) -> OtherMembers:
    """The members of the group that are not the pipeline's driver, which has that group.instance.id.

    timeout: seconds. Raises KafkaException, also while a broker that has just ended is still in the metadata.

    By list_groups(), although confluent-kafka calls it deprecated: describe_consumer_groups() ends the process with an
    assertion (rd_kafka_enq_once_del_source_return) when the group's coordinator goes away (librdkafka pull request
    5397). list_groups() lists no group.instance.id; a broker starts the member id of a static member with it.

    Its requests list the names of all groups, and describe this one. Beside 10,000 groups a call takes 1 ms of CPU here
    and 8 ms on three brokers. kafka-python, which asks by name, takes 7 ms here and 8 ms there for its new connections.
    """
    groups = admin.list_groups(group, timeout=timeout)
    for listed in groups:
        if listed.error is not None:
            raise KafkaException(listed.error)
    if any(listed.state == _NEW_PROTOCOL for listed in groups):
        return OtherMembers((), _has_members(admin, group, timeout))
    driver = _member_ids(instance_id)
    members = (member for listed in groups for member in listed.members)
    return OtherMembers(tuple(sorted({m.client_id for m in members if not driver.fullmatch(m.id)})), False)


def driver_member(admin: AdminClient, group: str, instance_id: str, timeout: float) -> str | None:
    """The member id of the pipeline's driver, another one after each join; None: the group does not have it.

    timeout: seconds. Raises KafkaException.
    """
    for listed in admin.list_groups(group, timeout=timeout):
        if listed.error is not None:
            raise KafkaException(listed.error)
        for member in listed.members:
            if _member_ids(instance_id).fullmatch(member.id):
                return str(member.id)
    return None


def _member_ids(instance_id: str) -> re.Pattern[str]:
    """What brokers call the static member with this group.instance.id."""
    return re.compile(f"{re.escape(instance_id)}-{_UUID}")


def _has_members(admin: AdminClient, group: str, timeout: float) -> bool:
    answer = admin.list_consumer_groups(request_timeout=timeout).result(timeout)
    states = [listing.state for listing in answer.valid if listing.group_id == group]
    if not states and answer.errors:  # the broker that failed may be the group's coordinator
        raise answer.errors[0]
    return any(state not in (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD) for state in states)
