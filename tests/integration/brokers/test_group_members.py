"""The members of a consumer group, also while its coordinator goes away."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException

from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.broker_requirements import OtherMembers
from ackwright_stream.group_members import other_members
from ackwright_stream.jobspec import INSTANCE_ID, Cluster
from integration.support.members import join
from integration.support.new_topics import NewTopicName, create_topic
from waiting import wait_until

NOBODY = OtherMembers((), False)


def new_group() -> str:
    return f"g-{uuid.uuid4().hex[:8]}"


@contextmanager
def member(servers: str, group: str, topic: str, **settings: str) -> Iterator[None]:
    options = {name.replace("_", "."): value for name, value in settings.items()}
    # A broker that does not know a new topic yet makes the member wait for the next refresh, five minutes by default.
    options["topic.metadata.refresh.interval.ms"] = "500"
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "billing", **options})
    try:
        join(consumer, topic)
        yield
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, OtherMembers(("billing",), False)),
        ({"group_instance_id": "another"}, OtherMembers(("billing",), False)),
        ({"group_instance_id": INSTANCE_ID}, NOBODY),
        ({"group_protocol": "consumer"}, OtherMembers((), True)),
    ],
    ids=["dynamic", "static", "driver", "new-protocol"],
)
def test_every_kind_of_member_is_reported(
    kafka: EmbeddedKafka, topic: NewTopicName, settings: dict[str, str], expected: OtherMembers
) -> None:
    group = new_group()
    asking = Kafka(Cluster(kafka.bootstrap_servers))
    assert asking.other_members(group, INSTANCE_ID) == NOBODY
    with member(kafka.bootstrap_servers, group, topic(), **settings):
        assert asking.other_members(group, INSTANCE_ID) == expected


def test_members_of_the_new_protocol_that_have_left_do_not_count(kafka: EmbeddedKafka, topic: NewTopicName) -> None:
    group = new_group()
    asking = Kafka(Cluster(kafka.bootstrap_servers))
    with member(kafka.bootstrap_servers, group, topic(), group_protocol="consumer"):
        pass
    wait_until(lambda: asking.other_members(group, INSTANCE_ID) == NOBODY, "the group is empty")


def test_asking_survives_the_loss_of_the_groups_coordinator(fragile_kafka: EmbeddedKafka) -> None:
    """With describe_consumer_groups() this loop ends the process, most of the times that it runs."""
    group = new_group()
    servers = fragile_kafka.bootstrap_servers
    asking = Kafka(Cluster(servers))
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    with member(servers, group, create_topic(admin)):
        assert asking.other_members(group, INSTANCE_ID).client_ids == ("billing",)
        coordinator = fragile_kafka.coordinator(group)
        coordinator.kill()
        try:

            def answered() -> bool:
                try:
                    present = other_members(admin, group, INSTANCE_ID, 3)
                except KafkaException:
                    admin.list_topics(timeout=3)
                    return False
                assert present in (NOBODY, OtherMembers(("billing",), False))  # NOBODY: no broker has the group yet
                return bool(present)

            wait_until(answered, "the new coordinator names the member")
            assert asking.other_members(group, INSTANCE_ID).client_ids == ("billing",)
        finally:
            coordinator.start()
            fragile_kafka.wait_until_in_sync(120)
