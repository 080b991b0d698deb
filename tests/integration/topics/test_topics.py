"""Topics on real brokers: created as topic_plan, compared when they exist; each refusal is one sentence."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from ackwright.apply.topics import ensure
from ackwright.clients.kafka import Kafka
from ackwright.clients.outcome import Outcome
from ackwright.errors import AckwrightError
from ackwright.local.kafka import EmbeddedKafka, Security
from ackwright.local.ports import free_ports
from ackwright.observe.topics import topics
from ackwright.planning.guarantees import Setting
from ackwright.planning.topics import TopicPlan
from ackwright_stream.admin_client import AdminClient
from ackwright_stream.broker_requirements import unmet_by_group
from ackwright_stream.jobspec import INSTANCE_ID, Cluster, Reason
from integration.support.members import join
from integration.support.new_topics import set_topic
from waiting import wait_until

CONFIG = (Setting("min.insync.replicas", "2", "two"), Setting("cleanup.policy", "compact", "kept"))


@pytest.fixture(scope="module")
def client(kafka: EmbeddedKafka) -> Kafka:
    return Kafka(Cluster(kafka.bootstrap_servers))


@pytest.fixture
def topic_plan() -> TopicPlan:
    return TopicPlan(f"topic_plan-{uuid.uuid4().hex[:10]}", 4, 3, "because", CONFIG)


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """One broker with passwords, TLS and access rules: the plain listener may do everything, the user ann nothing."""
    rules = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with EmbeddedKafka(brokers=1, overrides=rules, security=Security(users={"ann": "right"}, tls=True)) as cluster:
        yield cluster


def secured(kafka: EmbeddedKafka, directory: Path, password: str, ca: Path | None = None) -> Cluster:
    directory.joinpath("username").write_text("ann")
    directory.joinpath("password").write_text(password)
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": str(ca or kafka.ca_file),
    }
    return Cluster(kafka.secure_bootstrap_servers, librdkafka=settings, credentials=str(directory))


def test_a_topic_is_created_once_as_planned_and_with_all_replicas_in_sync(client: Kafka, topic_plan: TopicPlan) -> None:
    read_topics = functools.partial(topics, client)
    first = ensure(client, [topic_plan], read_topics=read_topics)
    assert (first.created, first.differences) == ((topic_plan.name,), ())
    report = read_topics([topic_plan.name])[topic_plan.name]
    assert (report.partitions, report.replication_factor, report.out_of_sync) == (4, 3, 0)
    assert report.config["cleanup.policy"] == "compact"
    again = ensure(client, [topic_plan], read_topics=read_topics)
    assert (again.created, again.differences) == ((), ())
    assert read_topics([topic_plan.name])[topic_plan.name].id == report.id


def test_differences_of_an_existing_topic_are_reported_and_not_changed(
    client: Kafka, topic: Callable[..., str]
) -> None:
    name = topic(partitions=2, replicas=2, config={"min.insync.replicas": "1"})
    topic_plan = TopicPlan(name, 4, 3, "because", CONFIG)
    report = ensure(client, [topic_plan], read_topics=functools.partial(topics, client))
    assert report.created == ()
    # Another broker may answer, which learns of the topic later.
    wait_until(lambda: name in topics(client, [name]), "the broker knows the topic")
    assert {d.setting: d.found for d in report.differences} == {
        "partitions": "2",
        "replication.factor": "2",
        "min.insync.replicas": "1",
        "cleanup.policy": "delete",
    }
    assert topics(client, [name])[name].partitions == 2


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_of_ackwrights_own_is_refused_until_it_keeps_its_records(
    kafka: EmbeddedKafka, client: Kafka, topic: Callable[..., str], policy: str
) -> None:
    name = topic(config={"cleanup.policy": policy, "min.insync.replicas": "2"})
    plans = [TopicPlan(name, 1, 3, "because", CONFIG, internal=True)]
    read_topics = functools.partial(topics, client)
    with pytest.raises(AckwrightError, match=f"topic {name}: cleanup.policy is {policy}, planned is compact") as e:
        ensure(client, plans, read_topics=read_topics)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED
    set_topic(kafka.bootstrap_servers, name, "cleanup.policy", "compact")

    def is_accepted() -> bool:
        try:
            ensure(client, plans, read_topics=read_topics)
        except AckwrightError:
            return False
        return True

    wait_until(is_accepted, "a broker knows the setting")


def test_a_missing_source_topic_stops_before_anything_is_created(client: Kafka, topic_plan: TopicPlan) -> None:
    with pytest.raises(
        AckwrightError, match=r"no such topic at .*: nowhere; create it, or declare it under spec.topics"
    ) as e:
        ensure(client, [topic_plan], ["nowhere"], read_topics=functools.partial(topics, client))
    assert e.value.reason is Reason.TOPIC_MISSING
    assert topics(client, [topic_plan.name, "nowhere"]) == {}


def test_an_existing_topic_and_an_invalid_one_are_different_outcomes(client: Kafka, topic_plan: TopicPlan) -> None:
    assert client.create_topic(topic_plan.name, 1, 3, {}) is Outcome.DONE
    assert client.create_topic(topic_plan.name, 1, 3, {}) is Outcome.EXISTS
    with pytest.raises(AckwrightError, match="correct the topic") as e:
        client.create_topic(f"{topic_plan.name}-x", 1, 3, {"no.such.setting": "1"})
    assert e.value.reason is Reason.INVALID_SPEC
    with pytest.raises(AckwrightError) as e:
        client.create_topic(f"{topic_plan.name}-y", 1, 7, {})
    assert e.value.reason is Reason.BROKERS_TOO_FEW


def test_no_answer_to_a_creation_is_unknown(guarded: EmbeddedKafka, topic_plan: TopicPlan) -> None:
    impatient = Kafka(Cluster(guarded.bootstrap_servers), timeout=2)
    assert impatient.brokers() == (1,)
    guarded.broker(1).suspend()
    try:
        assert impatient.create_topic(topic_plan.name, 1, 1, {}) is Outcome.UNKNOWN
    finally:
        guarded.broker(1).resume()


def test_too_few_brokers_names_both_numbers(guarded: EmbeddedKafka, topic_plan: TopicPlan) -> None:
    client = Kafka(Cluster(guarded.bootstrap_servers))
    with pytest.raises(AckwrightError, match="needs 3 brokers for 3 replicas, but only 1 is up; add brokers") as e:
        ensure(client, [topic_plan], read_topics=functools.partial(topics, client))
    assert e.value.reason is Reason.BROKERS_TOO_FEW
    assert "\n" not in e.value.message


def test_brokers_out_of_reach() -> None:
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    with pytest.raises(AckwrightError, match=f"connecting to {nobody} failed: .*bootstrapServers") as e:
        Kafka(Cluster(nobody), timeout=2).brokers()
    assert e.value.reason is Reason.BROKERS_UNREACHABLE


def test_the_right_password_opens_and_a_wrong_one_is_not_called_unreachable(
    guarded: EmbeddedKafka, tmp_path: Path
) -> None:
    assert Kafka(secured(guarded, tmp_path, "right")).brokers() == (1,)
    with pytest.raises(AckwrightError, match="check the user name and the password") as e:
        Kafka(secured(guarded, tmp_path, "wrong")).brokers()
    assert e.value.reason is Reason.AUTHENTICATION_FAILED
    assert "wrong" not in e.value.message


def test_a_certificate_of_another_authority_is_refused(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    from ackwright.local import certificates

    other = tmp_path / "other"
    other.mkdir()
    certificates.create(other)
    with pytest.raises(AckwrightError, match="check tls, the CA certificate") as e:
        Kafka(secured(guarded, tmp_path, "right", ca=other / "ca.crt")).brokers()
    assert e.value.reason is Reason.AUTHENTICATION_FAILED


def test_a_principal_without_rights_gets_an_error_that_names_the_missing_permission(
    guarded: EmbeddedKafka, tmp_path: Path
) -> None:
    with pytest.raises(AckwrightError, match="grant the principal Create on topic forbidden") as e:
        Kafka(secured(guarded, tmp_path, "right")).create_topic("forbidden", 1, 1, {})
    assert e.value.reason is Reason.AUTHORIZATION_FAILED


def test_reassignments_use_the_same_secure_connection_and_name_missing_permissions(
    guarded: EmbeddedKafka, tmp_path: Path
) -> None:
    """By kafka-python, whose settings have other names."""
    ann = Kafka(secured(guarded, tmp_path, "right"))
    for call in (
        ann.moving,
        lambda: ann.reassign("t", {0: (1,)}),
        lambda: ann.configure("BROKER", "1", {"leader.replication.throttled.rate": "1000"}),
    ):
        with pytest.raises(AckwrightError, match="grant the principal") as e:
            call()
        assert e.value.reason is Reason.AUTHORIZATION_FAILED
    assert Kafka(Cluster(guarded.bootstrap_servers)).moving() == {}


def test_an_invalid_reassignment_is_refused_per_partition(guarded: EmbeddedKafka, topic_plan: TopicPlan) -> None:
    client = Kafka(Cluster(guarded.bootstrap_servers))
    client.create_topic(topic_plan.name, 1, 1, {})
    with pytest.raises(AckwrightError, match="failed for 1 of 2 partitions"):
        client.reassign(topic_plan.name, {0: (1,), 7: (1,)})
    with pytest.raises(AckwrightError, match="failed for 1 of 1 partition"):
        client.reassign(topic_plan.name, {0: (1, 99)})


def test_credentials_that_are_not_there(guarded: EmbeddedKafka, tmp_path: Path) -> None:
    with pytest.raises(AckwrightError, match="the username cannot be read from") as e:
        Kafka(Cluster(guarded.secure_bootstrap_servers, credentials=str(tmp_path / "nowhere")))
    assert e.value.reason is Reason.AUTHENTICATION_FAILED


def test_a_group_with_another_member_is_refused_and_a_fresh_one_is_not(
    kafka: EmbeddedKafka, client: Kafka, admin: AdminClient, topic: Callable[..., str]
) -> None:
    name, group = topic(), f"subscribed-{uuid.uuid4().hex[:8]}"
    assert unmet_by_group(group, client.other_members(group, INSTANCE_ID)) is None
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    try:
        join(consumer, name)
        in_use = unmet_by_group(group, client.other_members(group, INSTANCE_ID))
        assert in_use is not None
        assert in_use.reason is Reason.GROUP_IN_USE
        assert f"consumer group {group} is used by other consumers" in in_use.cause
    finally:
        consumer.close()
    assert unmet_by_group(group, client.other_members(group, INSTANCE_ID)) is None
