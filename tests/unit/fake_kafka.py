"""Brokers in memory, as clients.kafka shows them, and the operator's connections to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ackwright.api.spec import DeliveryPipeline
from ackwright.clients.kafka import Outcome
from ackwright.errors import AckwrightError
from ackwright_stream.jobspec import Reason


class FakeKafka:
    """existing: settings of topics by name; their shapes in shapes: partitions, replicas, replicas in sync. down: what every call raises.
    subscribed: the group has a subscribing member. asked: how often it was asked for topics."""

    address = "k:9092"

    def __init__(self, brokers: int = 3) -> None:
        self.count = brokers
        self.existing: dict[str, dict[str, str]] = {}
        self.shapes: dict[str, tuple[int, int, int]] = {}
        self.down: AckwrightError | None = None
        self.subscribed = False
        self.asked = 0

    def brokers(self) -> tuple[int, ...]:
        if self.down:
            raise self.down
        return tuple(range(self.count))

    def topics(self, names: tuple[str, ...]) -> dict[str, Any]:
        self.asked += 1
        self.brokers()
        return {n: SimpleNamespace(topic_id=f"id-{n}", partitions=self._partitions(n)) for n in names if n in self.existing}

    def _partitions(self, name: str) -> list[SimpleNamespace]:
        partitions, replicas, in_sync = self.shapes[name]
        return [SimpleNamespace(replicas=[0] * replicas, isr=[0] * in_sync) for _ in range(partitions)]

    def topic_configs(self, names: tuple[str, ...]) -> dict[str, dict[str, str]]:
        return {n: self.existing[n] for n in names if n in self.existing}

    def broker_config(self, node: int) -> dict[str, str]:
        return {"group.coordinator.rebalance.protocols": "classic", "transaction.partition.verification.enable": "true"}

    def group(self, name: str) -> Any | None:
        return SimpleNamespace(is_simple_consumer_group=False, state=SimpleNamespace(name="STABLE")) if self.subscribed else None

    def create_topic(self, name: str, partitions: int, replication_factor: int, config: Mapping[str, str]) -> Outcome:
        self.brokers()
        self.existing[name] = dict(config)
        self.shapes[name] = partitions, replication_factor, replication_factor
        return Outcome.DONE

    def delete_topic(self, name: str) -> Outcome:
        self.brokers()
        self.existing.pop(name, None)
        return Outcome.DONE


class FakeConnections:
    """One connection, always the same. given_up: why it was given up."""

    def __init__(self, kafka: FakeKafka) -> None:
        self._kafka = kafka
        self.given_up: list[Reason] = []

    def kafka(self, pipeline: DeliveryPipeline) -> tuple[str, FakeKafka]:
        return "key", self._kafka

    def failed(self, key: str, error: AckwrightError) -> None:
        self.given_up.append(error.reason)
