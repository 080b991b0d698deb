"""What is read of brokers and group, and whether it serves a pipeline, under every guarantee."""

from __future__ import annotations

from typing import cast

import pytest

from ackwright.api.spec import parse
from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe.cluster import broker_settings, job_premises
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright.planning.suitability import require_suitable
from ackwright_stream.jobspec import INSTANCE_ID, Guarantee, Reason
from unit.fake_kafka import FakeKafka
from unit.world import SPEC


def plan_for(guarantee: Guarantee) -> DeliveryPlan:
    head = {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": {"name": "p"}}
    return plan(parse({**head, "spec": {**SPEC, "guarantee": guarantee}}))


def check(kafka: FakeKafka, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> None:
    delivery_plan = plan_for(guarantee)
    require_suitable(delivery_plan, job_premises(cast(Kafka, kafka), delivery_plan))


def with_settings(**settings: str) -> FakeKafka:
    """Brokers of which the second has these settings; in their names, __ is a dot."""
    kafka = FakeKafka()
    kafka.brokers_settings["1"] = {name.replace("__", "."): value for name, value in settings.items()}
    return kafka


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_broker_with_a_lower_transaction_timeout_is_unsupported_under_every_guarantee(
    guarantee: Guarantee,
) -> None:
    """Every guarantee commits positions in transactions, so initialising a producer would fail forever."""
    with pytest.raises(
        AckwrightError, match=r"broker 1 has transaction\.max\.timeout\.ms=59999: .* need 60000; set .*=60000 or more"
    ) as e:
        check(with_settings(transaction__max__timeout__ms=str(TRANSACTION_TIMEOUT_MS - 1)), guarantee)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED
    check(with_settings(transaction__max__timeout__ms=str(TRANSACTION_TIMEOUT_MS)), guarantee)


def test_every_requirement_that_is_not_met_is_reported_with_the_reason_of_the_first() -> None:
    kafka = with_settings(transaction__partition__verification__enable="false", transaction__max__timeout__ms="1")
    kafka.join("billing")
    with pytest.raises(AckwrightError) as e:
        check(kafka)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED
    assert [line.partition(" ")[0] for line in e.value.message.splitlines()] == ["broker", "broker", "consumer"]


def test_settings_that_may_not_be_read_count_as_met() -> None:
    class Secretive(FakeKafka):
        def broker_config(self, node: int) -> dict[str, str]:
            raise AckwrightError(Reason.AUTHORIZATION_FAILED, "no")

    assert broker_settings(cast(Kafka, Secretive()), (0, 1)) == {}
    check(Secretive())


def test_the_driver_is_the_only_member_that_the_group_may_have() -> None:
    """Its own membership, left by a driver that has just ended or held by the one that runs, refuses no start."""
    kafka = FakeKafka()
    kafka.join("rdkafka", INSTANCE_ID)
    check(kafka)
    for client in ("zeta", "alpha", "beta", "gamma"):
        kafka.join(client)
    with pytest.raises(AckwrightError, match=r"\(client\.id alpha, beta, gamma\); stop them") as e:
        check(kafka)
    assert e.value.reason is Reason.GROUP_IN_USE


def test_a_static_member_with_another_instance_id_is_refused() -> None:
    kafka = FakeKafka()
    kafka.join("stream", "another-instance")
    with pytest.raises(AckwrightError, match=r"client\.id stream"):
        check(kafka)
