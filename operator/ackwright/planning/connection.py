"""How the pipeline's clients connect to the brokers: settings in shared names, and the Secrets that they need. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ackwright.api.schema_fields import SchemaRegistry
from ackwright.api.secret_fields import Kafka
from ackwright.planning.guarantees import Setting, Settings


@dataclass(frozen=True)
class CaSecret:
    """The Secret with the CA certificate."""

    name: str
    key: str


@dataclass(frozen=True)
class Connection:
    """A declared connection. It contains names of Secrets and neither paths nor credentials."""

    settings: Settings  # in names that Java clients and librdkafka share
    mechanism: str | None = None  # of SASL; None: no login
    credentials_secret: str | None = None  # with the keys username and password
    ca_secret: CaSecret | None = None  # None: no TLS, or the system's certificate authorities


@dataclass(frozen=True)
class RegistryConnection:
    """The declared schema registry, as Connection."""

    url: str
    credentials_secret: str | None  # with the keys username and password
    ca_secret: CaSecret | None
    timeout_ms: int  # of one operation with its repetitions


def registry_connection(registry: SchemaRegistry, timeout_ms: int) -> RegistryConnection:
    """The connection to a registry that a spec declares."""
    ca = registry.tls.ca_secret if registry.tls else None
    return RegistryConnection(
        url=registry.url.rstrip("/"),
        credentials_secret=registry.credentials_secret.name if registry.credentials_secret else None,
        ca_secret=CaSecret(ca.name, ca.key) if ca else None,
        timeout_ms=timeout_ms,
    )


def connection(kafka: Kafka, path: str = "spec.kafka") -> Connection:
    """The connection that a spec declares at this path."""
    auth, ca = kafka.auth, kafka.tls.ca_secret if kafka.tls else None
    return Connection(
        settings=_settings(kafka, path),
        mechanism=auth.mechanism if auth else None,
        credentials_secret=auth.credentials_secret.name if auth else None,
        ca_secret=CaSecret(ca.name, ca.key) if ca else None,
    )


def _settings(kafka: Kafka, path: str) -> Settings:
    protocol = ("SASL_" if kafka.auth else "") + ("SSL" if kafka.tls else "PLAINTEXT")
    # YAML may have folded the list into several lines.
    servers = ",".join(server.strip() for server in kafka.bootstrap_servers.split(","))
    settings: Settings = (
        Setting("bootstrap.servers", servers, f"{path}.bootstrapServers"),
        Setting("security.protocol", protocol, f"{path}.auth and {path}.tls"),
    )
    if kafka.tls:
        verified = Setting(
            "ssl.endpoint.identification.algorithm", "https", "the certificate must be for the host that was contacted"
        )
        settings = (*settings, verified)
    return (*settings, Setting("sasl.mechanism", kafka.auth.mechanism, f"{path}.auth")) if kafka.auth else settings
