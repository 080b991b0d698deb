"""The table of topic settings that `ackwright plan` checks names and types with, against a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from ackwright.clients.kafka import Kafka
from ackwright.local.kafka import EmbeddedKafka
from ackwright.planning.topic_settings import SETTINGS, Kind, fits, resembling
from ackwright_stream.jobspec import Cluster
from integration.support.new_topics import NewTopicName
from waiting import ANSWER

VALUES = ("7d", "", "1.5", "yes", "3000000000", "9223372036854775808", "0x10", "1e3", "half", "TRUE", " 1048576 ", "+5")


def accepts(admin: AdminClient, topic: str, name: str, value: str) -> bool:
    """Whether the broker accepts a setting. Changes nothing."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    [future] = admin.incremental_alter_configs([resource], validate_only=True).values()
    try:
        future.result(ANSWER)
    except KafkaException:
        return False
    return True


@pytest.fixture
def admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def test_every_setting_of_the_broker_is_in_the_table(kafka: EmbeddedKafka, topic: NewTopicName) -> None:
    name = topic(partitions=1)
    names = set(Kafka(Cluster(kafka.bootstrap_servers)).topic_configs([name])[name])
    assert names <= set(SETTINGS)


def test_values_of_another_type_are_refused_by_the_broker(admin: AdminClient, topic: NewTopicName) -> None:
    """Control: the broker accepts one value of each type."""
    name = topic(partitions=1)
    for setting, kind in SETTINGS.items():
        wrong = [value for value in VALUES if not fits(kind, value) and accepts(admin, name, setting, value)]
        assert wrong == [], setting
    for setting, value in (("retention.ms", " 1048576 "), ("preallocate", "TRUE"), ("min.cleanable.dirty.ratio", ".5")):
        assert accepts(admin, name, setting, value)
    assert SETTINGS["retention.ms"] is Kind.LONG


@pytest.mark.parametrize("misspelt", ["retentionms", "retention_ms", "cleanup-policy", "Retention.Ms"])
def test_misspelt_settings_are_refused_by_the_broker(admin: AdminClient, topic: NewTopicName, misspelt: str) -> None:
    assert resembling(misspelt)
    assert not accepts(admin, topic(partitions=1), misspelt, "1")
