"""Reads the brokers' own settings and the members of a consumer group. Reads only, and decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from ackwright.clients.kafka import Kafka
from ackwright.errors import AckwrightError
from ackwright.planning.observed import JobPremises
from ackwright.planning.plan import DeliveryPlan
from ackwright_stream.jobspec import INSTANCE_ID, Reason

T = TypeVar("T")


def job_premises(kafka: Kafka, plan: DeliveryPlan, brokers: Iterable[int] | None = None) -> JobPremises:
    """What decides whether brokers and group can serve a job of this plan; one call per broker.

    brokers: their ids; None: they are read, too. Raises AckwrightError if the brokers do not answer.
    """
    settings = broker_settings(kafka, kafka.brokers() if brokers is None else brokers)
    return JobPremises(settings, None if not plan.sink.in_kafka else kafka.other_members(plan.group, INSTANCE_ID))


def broker_settings(kafka: Kafka, brokers: Iterable[int]) -> Mapping[int, Mapping[str, str]]:
    """The settings of each broker; empty if the principal may not read them."""
    return if_permitted(lambda: {broker: kafka.broker_config(broker) for broker in sorted(brokers)}) or {}


def if_permitted(read: Callable[[], T]) -> T | None:
    """What `read` returns; None if the principal may not read it."""
    try:
        return read()
    except AckwrightError as e:
        if e.reason is not Reason.AUTHORIZATION_FAILED:
            raise
        return None
