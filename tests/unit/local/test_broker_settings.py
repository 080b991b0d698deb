"""Replication factors depend on the number of brokers; the second listener is configured on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from ackwright.local.broker_settings import Ports, Security, broker_settings
from ackwright.local.ports import free_ports


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_replication_factors_depend_on_the_number_of_brokers(brokers: int, replicas: str, in_sync: str) -> None:
    ports = {node: Ports(node, 10 + node, 20 + node) for node in range(1, brokers + 1)}
    settings = broker_settings(1, ports, Path("/d"), None)
    assert (
        settings["offsets.topic.replication.factor"] == settings["transaction.state.log.replication.factor"] == replicas
    )
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == in_sync
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:11"


@pytest.mark.parametrize(
    ("security", "protocol"),
    [
        (Security({"a": "b"}), "SASL_PLAINTEXT"),
        (Security({"a": "b"}, tls=True), "SASL_SSL"),
        (Security(tls=True), "SSL"),
    ],
)
def test_the_second_listener_has_the_requested_protocol(security: Security, protocol: str) -> None:
    settings = broker_settings(1, {1: Ports(1, 2, 3)}, Path("/d"), security)
    assert f"SECURE:{protocol}" in settings["listener.security.protocol.map"]
    assert "SECURE://127.0.0.1:3" in settings["advertised.listeners"]
    assert settings["inter.broker.listener.name"] == "PLAINTEXT"


def test_ports_are_distinct_and_outside_the_ephemeral_range() -> None:
    ports = free_ports(9)
    assert len(set(ports)) == 9
    assert all(20_000 <= port <= 32_000 for port in ports)


@pytest.mark.parametrize(("rack", "expected"), [("a", "a"), (None, "not set")])
def test_broker_rack_is_set_only_for_a_broker_with_a_rack(rack: str | None, expected: str) -> None:
    settings = broker_settings(1, {1: Ports(1, 2, 3)}, Path("/d"), None, rack)
    assert settings.get("broker.rack", "not set") == expected
