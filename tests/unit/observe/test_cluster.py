"""The check of brokers, under every guarantee."""

from __future__ import annotations

from typing import cast

import pytest

from ackwright.api.spec import parse
from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.observe import cluster
from ackwright.planning.guarantees import TRANSACTION_TIMEOUT_MS
from ackwright.planning.plan import DeliveryPlan, plan
from ackwright_stream.jobspec import INSTANCE_ID, Guarantee, Reason
from unit.fake_kafka import FakeKafka
from unit.world import SPEC


def plan_for(guarantee: Guarantee) -> DeliveryPlan:
    head = {"apiVersion": "ackwright.io/v1alpha1", "kind": "DeliveryPipeline", "metadata": {"name": "p"}}
    return plan(parse({**head, "spec": {**SPEC, "guarantee": guarantee}}))


def check(allowed_ms: int, guarantee: Guarantee) -> None:
    kafka = FakeKafka()
    kafka.brokers_settings["1"] = {"transaction.max.timeout.ms": str(allowed_ms)}
    cluster.check(cast(Kafka, kafka), plan_for(guarantee))


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_a_broker_with_a_lower_transaction_timeout_is_unsupported_under_every_guarantee(
    guarantee: Guarantee,
) -> None:
    """Every guarantee commits positions in transactions, so initialising a producer would fail forever."""
    with pytest.raises(
        AckwrightError, match=r"broker 1 has transaction\.max\.timeout\.ms=59999, .* need 60000; raise it"
    ) as e:
        check(TRANSACTION_TIMEOUT_MS - 1, guarantee)
    assert e.value.reason is Reason.BROKERS_UNSUPPORTED
    check(TRANSACTION_TIMEOUT_MS, guarantee)


def test_the_driver_is_the_only_member_that_the_group_may_have() -> None:
    """Its own membership, left by a driver that has just ended or held by the one that runs, refuses no start."""
    kafka = FakeKafka()
    kafka.join("rdkafka", INSTANCE_ID)
    cluster.check(cast(Kafka, kafka), plan_for(Guarantee.EXACTLY_ONCE))
    for client in ("zeta", "alpha", "beta", "gamma"):
        kafka.join(client)
    with pytest.raises(AckwrightError, match=r"\(client\.id alpha, beta, gamma\); stop them") as e:
        cluster.check(cast(Kafka, kafka), plan_for(Guarantee.EXACTLY_ONCE))
    assert e.value.reason is Reason.GROUP_IN_USE


def test_a_static_member_with_another_instance_id_is_refused() -> None:
    kafka = FakeKafka()
    kafka.join("stream", "another-instance")
    with pytest.raises(AckwrightError, match=r"client\.id stream"):
        cluster.check(cast(Kafka, kafka), plan_for(Guarantee.EXACTLY_ONCE))
