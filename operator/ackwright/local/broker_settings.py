"""The server.properties of an embedded broker, computed without I/O so that they can be tested without a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Partitions of __consumer_offsets and of __transaction_state. Kafka's default of 50 each takes seconds to create.
INTERNAL_PARTITIONS = 6


@dataclass(frozen=True)
class Security:
    """A second listener beside the plaintext one, with SCRAM-SHA-512, TLS, or both."""

    users: Mapping[str, str] = field(default_factory=dict)  # name → password; empty: no authentication
    tls: bool = False

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.users else "") + ("SSL" if self.tls else "PLAINTEXT")


@dataclass(frozen=True)
class Ports:
    """The ports of one node, all on the same host."""

    plain: int
    controller: int
    secure: int
    host: str = field(default="127.0.0.1", kw_only=True)


def broker_settings(
    node: int, ports: Mapping[int, Ports], directory: Path, security: Security | None, rack: str | None = None
) -> dict[str, str]:
    """The server.properties of one node.

    rack: None leaves broker.rack unset. Sizes and timeouts are small, because these brokers run briefly and share one
    machine.
    """
    replicas = min(3, len(ports))
    in_sync = max(1, replicas - 1)
    listeners = {"PLAINTEXT": ports[node].plain}
    protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT"}
    if security:
        listeners["SECURE"] = ports[node].secure
        protocols["SECURE"] = security.protocol
    host = ports[node].host
    advertised = ",".join(f"{name}://{host}:{number}" for name, number in listeners.items())
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node),
        "controller.quorum.voters": ",".join(f"{i}@{p.host}:{p.controller}" for i, p in ports.items()),
        "listeners": f"{advertised},CONTROLLER://{host}:{ports[node].controller}",
        "advertised.listeners": advertised,
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / f"data-{node}"),
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(in_sync),
        "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # A dead broker's partitions get new leaders when its session expires (Kafka's default: 9 s). The session must
        # be longer than a pause of a busy laptop.
        "broker.session.timeout.ms": "6000",
        "broker.heartbeat.interval.ms": "500",
        "log.segment.bytes": str(64 * 1024 * 1024),
        "log.index.size.max.bytes": str(1024 * 1024),  # preallocated per segment
        "num.network.threads": "2",
        "num.io.threads": "4",
        "log.cleaner.dedupe.buffer.size": str(4 * 1024 * 1024),
    }
    if rack:
        settings["broker.rack"] = rack
    return settings | (_secure_listener(security, directory) if security else {})


def _secure_listener(security: Security, directory: Path) -> dict[str, str]:
    settings: dict[str, str] = {}
    if security.users:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings["sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
        settings["listener.name.secure.scram-sha-512.sasl.jaas.config"] = f"{module} required;"
    if security.tls:
        settings["listener.name.secure.ssl.keystore.type"] = "PEM"
        settings["listener.name.secure.ssl.keystore.location"] = str(directory / "broker.pem")
    return settings
